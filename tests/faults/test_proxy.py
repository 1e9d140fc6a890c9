"""The runbook's nginx, a real one, before a coordinator whose store takes its time."""

import hashlib
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Timer
from typing import Any, Final

import httpx
import pytest
from fsspec.implementations.local import LocalFileSystem

import mallorn.client.model_upload
from mallorn import Client
from mallorn.core.address_checks import free_port
from mallorn.core.errors import TooLarge
from tests.fixtures.command_line import ROOT
from tests.fixtures.coordinator import Coordinator, Start
from tests.fixtures.debian import program
from tests.fixtures.models import onnx_bytes
from tests.fixtures.processes import answers_ok, serving

pytestmark = [
    pytest.mark.long,
    pytest.mark.parametrize("database_url", ["sqlite"], indirect=True),
]
# In one process it need not become another user, whoever it is.
CONFIGURATION: Final = """
daemon off;
master_process off;
pid {folder}/pid;
error_log {folder}/log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port};
        {location}
    }}
}}
"""


@contextmanager
def nginx(folder: Path, coordinator: Coordinator, **changes: str) -> Iterator[str]:
    """The coordinator behind the runbook's location, with other values for some of its directives."""
    found, port = program("nginx", "nginx-common"), free_port()
    block = re.search(r"location /mallorn/ \{.*?\n    \}", (ROOT / "docs/runbook.md").read_text(), re.S)
    assert block is not None
    location = block[0].replace("http://127.0.0.1:8000", coordinator.url)
    for directive, value in changes.items():
        location, found_times = re.subn(rf"{directive} \S+;", f"{directive} {value};", location)
        assert found_times == 1, directive
    file = folder / "nginx.conf"
    file.write_text(CONFIGURATION.format(folder=folder, port=port, location=location))
    words = [found.path, "-p", str(folder), "-e", str(folder / "log"), "-c", str(file)]
    url = f"http://127.0.0.1:{port}/mallorn"
    with serving(words, lambda: answers_ok(f"{url}/healthz"), folder / "log", os.environ | found.environ):
        yield url


@pytest.fixture
def model(tmp_path: Path) -> Path:
    file = tmp_path / "model.onnx"
    file.write_bytes(onnx_bytes(size_bytes=3_000_000))
    return file


def test_an_upload_whose_end_takes_longer_than_the_proxys_patience_arrives(
    start: Start, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator, may_move, move = start(), Event(), LocalFileSystem.mv

    def slowly(*words: Any, **how: Any) -> None:
        may_move.wait()
        move(*words, **how)

    monkeypatch.setattr(LocalFileSystem, "mv", slowly)
    looked: list[str] = []
    get = mallorn.client.model_upload.Connection.get

    def look(*words: Any, **how: Any) -> Any:
        if looked:  # after the question whether it is there already: the proxy has given up
            may_move.set()
        looked.append(words[1])
        return get(*words, **how)

    monkeypatch.setattr(mallorn.client.model_upload.Connection, "get", look)
    giving_up = Timer(60, may_move.set)
    giving_up.start()
    with nginx(tmp_path, coordinator, proxy_read_timeout="1s") as url, Client(url) as client:
        kept = client.upload(model)
    giving_up.cancel()
    assert kept.id == hashlib.sha256(model.read_bytes()).hexdigest()
    assert len(looked) > 1


def test_what_the_proxy_takes_is_what_the_coordinator_takes(
    start: Start, model: Path, tmp_path: Path
) -> None:
    coordinator = start()
    with nginx(tmp_path, coordinator) as url:
        most = coordinator.parts.settings.max_model_bytes
        assert "raise MALLORN_MAX_MODEL_BYTES" in announced(url, most + 1), "and not the proxy"
    with (
        nginx(tmp_path, coordinator, client_max_body_size="1m") as url,
        Client(url) as client,
        pytest.raises(TooLarge) as refused,
    ):
        client.upload(model)
    assert "client_max_body_size" in refused.value.hint


def test_links_keep_the_path_that_the_proxy_removes(start: Start, model: Path, tmp_path: Path) -> None:
    coordinator = start()
    with nginx(tmp_path, coordinator) as url, Client(url) as client:
        body = {"model_id": client.upload(model).id, "target": {"kind": "llvm", "num-cores": 2}, "trials": 1}
        answer = httpx.post(f"{url}/api/v1/jobs", json=body)
        assert answer.status_code == 201
        assert httpx.get(httpx.URL(url).join(answer.headers["Location"])).json()["id"] == answer.json()["id"]


def announced(url: str, size_bytes: int) -> str:
    """What is said of an upload of this size before any of it is sent."""
    address = httpx.URL(url)
    head = f"PUT {address.path}/api/v1/models HTTP/1.1\r\nHost: {address.netloc.decode()}\r\n"
    with socket.create_connection((address.host, address.port)) as connection:
        connection.sendall(f"{head}Content-Length: {size_bytes}\r\n\r\n".encode())
        said = b""
        while b"}" not in said and (more := connection.recv(4096)):
            said += more
    return said.decode()
