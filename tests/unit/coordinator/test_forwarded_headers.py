"""Request ids in answers, errors and logs; links behind a proxy that removes a prefix."""

import logging
from collections.abc import Iterator
from unittest.mock import Mock

import pytest

from mallorn.core.log_setup import JsonLines
from mallorn.db.repositories.jobs import Jobs
from mallorn.services.coordinator.web.app_parts import Waker
from tests.fixtures.coordinator import Coordinator

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


class Lines(logging.Handler):
    """Keeps each line as it is written, with the facts of its context."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JsonLines("coordinator"))
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(self.format(record))


@pytest.fixture
def lines() -> Iterator[Lines]:
    handler = Lines()
    logging.getLogger().addHandler(handler)
    yield handler
    logging.getLogger().removeHandler(handler)


def test_a_well_formed_id_of_the_caller_is_kept_and_any_other_is_replaced(coordinator: Coordinator) -> None:
    def answered(headers: dict[str, str]) -> str:
        return str(coordinator.http.get("/jobs", headers=headers).headers["X-Request-ID"])

    assert answered({"X-Request-ID": "build-17.a_B"}) == "build-17.a_B"
    for given in ("", "a b", "x" * 65, "<script>"):
        made = answered({"X-Request-ID": given})
        assert made != given
        assert len(made) == 16
    assert answered({}) != answered({})


def test_an_error_names_the_id_of_its_request_whoever_answers(coordinator: Coordinator) -> None:
    for method, path in (("GET", "/jobs/nope"), ("DELETE", "/jobs"), ("GET", f"/jobs?cursor={'x' * 20_000}")):
        answer = coordinator.http.request(method, path, headers={"X-Request-ID": "here"})
        assert answer.is_error
        assert answer.json()["request_id"] == "here"
    foreign = coordinator.http.post("/jobs", headers={"Sec-Fetch-Site": "cross-site", "X-Request-ID": "here"})
    assert (foreign.status_code, foreign.json()["request_id"]) == (403, "here")


def test_an_unforeseen_error_and_its_lines_have_the_id(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch, lines: Lines
) -> None:
    monkeypatch.setattr(Jobs, "list", Mock(side_effect=RuntimeError("broken inside")))
    answer = coordinator.http.get("/jobs", headers={"X-Request-ID": "here"})
    assert (answer.status_code, answer.json()["request_id"]) == (500, "here")
    assert answer.headers["X-Request-ID"] == "here"
    failures = [line for line in lines.texts if "broken inside" in line]
    assert failures
    assert all('"request": "here"' in line for line in failures)


def test_lines_of_a_route_have_the_id_and_the_job(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch, lines: Lines
) -> None:
    job = coordinator.submit().json()["id"]

    def wake(*_args: object) -> None:
        logging.getLogger("here").warning("woken")

    monkeypatch.setattr(Waker, "wake", wake)
    coordinator.http.post(f"/jobs/{job}/pause")
    coordinator.http.post(f"/jobs/{job}/resume", headers={"X-Request-ID": "resumed"})
    (line,) = [line for line in lines.texts if "woken" in line]
    assert '"request": "resumed"' in line
    assert f'"job": "{job}"' in line


@pytest.mark.parametrize(
    ("prefix", "links"),
    [
        ("/mallorn", "/mallorn"),
        ("/tools/mallorn/", "/tools/mallorn"),
        ("", ""),
        ("//evil.example", ""),
        ("mallorn", ""),
        ("/a b", ""),
    ],
)
def test_links_begin_with_the_prefix_that_a_proxy_removed(
    coordinator: Coordinator, prefix: str, links: str
) -> None:
    headers = {"X-Forwarded-Prefix": prefix}
    answer = coordinator.submit(headers=headers)
    assert answer.headers["Location"] == f"{links}/api/v1/jobs/{answer.json()['id']}"
    api = coordinator.http.get("/openapi.json", headers=headers).json()
    assert api["servers"] == [{"url": "../.."}]
    slash = coordinator.http.get("/jobs/", headers=headers)
    assert slash.headers["Location"] == f"{coordinator.url}{links}/api/v1/jobs"
    assert coordinator.http.get(f"{coordinator.url}/icon.svg", headers=headers).status_code == 200
