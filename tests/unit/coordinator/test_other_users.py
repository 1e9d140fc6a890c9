"""Without keys a service belongs to the user who runs it: other users of the machine are refused."""

import json
import os
import re
import socket
from typing import Any, Final

import pytest

from mallorn.core.states import JobState
from mallorn.services.coordinator.app import create_app
from mallorn.services.coordinator.web.authenticator import SCOPES
from tests.fixtures.coordinator import Coordinator, OwnedRows
from tests.fixtures.users import NOBODY, SOMEBODY, as_user, only_root

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
#: What a proxy on this host would add: nobody's word for it is taken.
FORGED: Final = "X-Forwarded-For: 127.0.0.1\r\nForwarded: for=127.0.0.1\r\nX-Real-IP: 127.0.0.1\r\n"
END: Final = b"\0end\0"


def ask_as(uid: int, coordinator: Coordinator, *requests: tuple[str, str]) -> list[tuple[int, Any]]:
    """The statuses and bodies of the answers, all small ones, that a process of another user gets."""
    port = int(coordinator.url.rpartition(":")[2])
    reading, writing = os.pipe()

    def work() -> None:
        for method, path in requests:
            with socket.socket() as connection:
                connection.connect(("127.0.0.1", port))
                head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n{FORGED}"
                connection.sendall(f"{head}Content-Length: 0\r\n\r\n".encode())
                answer = b"".join(iter(lambda: connection.recv(65536), b""))
            os.write(writing, answer + END)

    with open(reading, "rb") as answers, open(writing, "wb"):
        assert as_user(uid, work) == 0
        os.set_blocking(reading, False)
        texts = answers.read().split(END)[:-1]
    parted = [text.partition(b"\r\n\r\n") for text in texts]
    return [(int(head.split()[1]), json.loads(body or b"null")) for head, _, body in parted]


@only_root
def test_another_user_is_refused_on_every_route(coordinator: Coordinator, owned: OwnedRows) -> None:
    described = create_app(coordinator.parts.settings).openapi()["paths"]
    guarded = [
        (method.upper(), path)
        for path, operations in described.items()
        for method, operation in operations.items()
        if SCOPES in operation
    ]
    assert ("GET", "/api/v1/jobs/{job_id}/events") in guarded
    named = [(method, path.replace("{job_id}", owned.job_id)) for method, path in guarded]
    answers = ask_as(NOBODY, coordinator, *((method, re.sub(r"[{}]", "", path)) for method, path in named))
    for route, (status, answer) in zip(guarded, answers, strict=True):
        assert (status, answer["error"]) == (401, "Unauthorized"), route
    assert coordinator.http.get(f"/jobs/{owned.job_id}").json()["state"] == JobState.TUNING
    assert coordinator.http.get("/audit").json()["items"] == []


@only_root
def test_the_refusal_says_whose_service_it_is_and_what_to_type(coordinator: Coordinator) -> None:
    (_, refusal), (status, session) = ask_as(
        NOBODY, coordinator, ("GET", "/api/v1/jobs"), ("GET", "/api/v1/session")
    )
    assert refusal["detail"] == "this service is of user root, and user nobody asks"
    assert (
        refusal["hint"]
        == "mallorn up --port 0   (or ask user root for a key: mallorn keys create NAME --here)"
    )
    assert status == 200
    assert session["owner"] is None
    assert session["requires_key"]
    assert session["refusal"] == f"{refusal['detail']}: {refusal['hint']}"


@only_root
def test_whether_it_lives_is_told_to_everybody(coordinator: Coordinator) -> None:
    assert ask_as(NOBODY, coordinator, ("GET", "/healthz")) == [
        (200, coordinator.http.get("/healthz").json())
    ]


@only_root
def test_the_user_who_runs_it_and_root_are_let_in(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mallorn.services.coordinator.web.authenticator.os.getuid", lambda: NOBODY)
    assert [status for status, _ in ask_as(NOBODY, coordinator, ("GET", "/api/v1/jobs"))] == [200]
    assert coordinator.http.get("/jobs").status_code == 200
    [(status, refusal)] = ask_as(SOMEBODY, coordinator, ("GET", "/api/v1/jobs"))
    assert status == 401
    assert refusal["detail"] == f"this service is of user nobody, and user {SOMEBODY} asks"
