"""Connections: how many may be open, and which of them end when clients do not send or read."""

import resource
import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import anyio
import pytest

from mallorn.core.api_keys import hash_secret
from mallorn.services.coordinator import serve
from mallorn.services.coordinator.serve import ConnectionLimits, reserve_files
from mallorn.services.coordinator.web.request_limits import PIECE_BYTES, RequestLimits
from tests.fixtures.coordinator import Coordinator, Start
from tests.fixtures.waiting import PATIENCE

WINDOW_BYTES = 4096


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One database does: nothing here is SQL."""
    return sqlite_url


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as open_sockets:
        yield open_sockets


def connect(coordinator: Coordinator, stack: ExitStack, source: str = "127.0.0.1") -> socket.socket:
    host, _, port = coordinator.url.removeprefix("http://").partition(":")
    client = socket.socket()
    client.settimeout(PATIENCE)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, WINDOW_BYTES)
    client.bind((source, 0))
    client.connect((host, int(port)))
    return stack.enter_context(client)


def has_ended(client: socket.socket) -> bool:
    """Wait until the service ends a connection on which it answers nothing."""
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def is_answered(client: socket.socket) -> bool:
    client.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    return client.recv(12) == b"HTTP/1.1 200"


class Line:
    """A connection that records whether it was cut."""

    def __init__(self) -> None:
        self.is_cut = False

    def cut(self) -> None:
        self.is_cut = True


def lines(limits: ConnectionLimits, address: str, count: int) -> list[Line]:
    added = [Line() for _ in range(count)]
    for line in added:
        limits.add(line, address)
    return added


def limited(most: int = 8, most_per_address: int = 4) -> ConnectionLimits:
    return ConnectionLimits(most, most_per_address, lambda address: address == "10.0.0.9")


def test_above_an_addresss_limit_its_connection_that_waited_longest_is_closed() -> None:
    limits = limited()
    others, own = lines(limits, "10.0.0.1", 4), lines(limits, "10.0.0.2", 4)
    limits.set_waiting(own[0], False)  # it has a request in progress
    lines(limits, "10.0.0.2", 1)
    assert [line.is_cut for line in own] == [False, True, False, False]
    assert not any(line.is_cut for line in others)


def test_a_connection_that_stays_silent_does_not_become_younger() -> None:
    limits = limited()
    own = lines(limits, "10.0.0.2", 4)
    limits.set_waiting(own[0], True)  # another byte of a head arrived
    lines(limits, "10.0.0.2", 1)
    assert own[0].is_cut


def test_a_connection_whose_requests_are_all_in_progress_gives_way_to_none() -> None:
    limits = limited()
    own = lines(limits, "10.0.0.2", 4)
    for line in own:
        limits.set_waiting(line, False)
    (late,) = lines(limits, "10.0.0.2", 1)
    assert [late.is_cut, *(line.is_cut for line in own)] == [True, False, False, False, False]


def test_one_address_gets_half_of_all_connections_at_most() -> None:
    limits = limited(most=8, most_per_address=0)
    first, *_ = lines(limits, "10.0.0.2", 5)
    assert first.is_cut


def test_a_proxys_address_has_no_limit_of_its_own_but_all_connections_have() -> None:
    limits = limited()
    first, *rest = lines(limits, "10.0.0.9", 9)
    assert first.is_cut
    assert not any(line.is_cut for line in rest)


def test_addresses_of_one_ipv6_network_count_together() -> None:
    limits = limited()
    first = lines(limits, "2001:db8::1", 1)[0]
    lines(limits, "2001:db8::2", 4)
    assert first.is_cut
    mapped, plain = lines(limits, "::ffff:10.0.0.3", 1)[0], lines(limits, "10.0.0.3", 4)
    assert mapped.is_cut
    assert not any(line.is_cut for line in plain)


def test_connections_that_ended_count_no_more() -> None:
    limits = limited()
    for line in lines(limits, "10.0.0.2", 4):
        limits.remove(line)
        limits.remove(line)
    assert not any(line.is_cut for line in lines(limits, "10.0.0.2", 4))
    assert set(limits.counts) == {"10.0.0.2"}


@pytest.mark.parametrize("limit", [64, 1024, 20_000, resource.RLIM_INFINITY])
def test_open_and_queued_connections_leave_files_for_the_rest(
    monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(serve.resource, "getrlimit", lambda _: (limit, limit))
    connections, backlog = reserve_files(10_000)
    assert connections >= min(10_000, 32)
    assert backlog >= 16
    if limit != resource.RLIM_INFINITY:
        assert connections + backlog <= 3 * limit // 4


def test_silent_clients_of_an_address_do_not_keep_others_out(start: Start, stack: ExitStack) -> None:
    coordinator = start(max_connections=8, max_connections_per_address=2)
    first, *_ = [connect(coordinator, stack, "127.0.0.2") for _ in range(3)]
    assert has_ended(first)
    assert is_answered(connect(coordinator, stack))


def test_silent_clients_of_all_addresses_give_way_to_a_new_one(start: Start, stack: ExitStack) -> None:
    coordinator = start(max_connections=4)
    first, *_ = [connect(coordinator, stack) for _ in range(4)]
    assert is_answered(connect(coordinator, stack))
    assert has_ended(first)


def test_a_client_that_does_not_read_is_cut_off(start: Start, stack: ExitStack) -> None:
    coordinator = start(client_wait_sec=0.2, api_keys={"ada": hash_secret("a key")})
    deaf = connect(coordinator, stack)
    deaf.sendall(b"GET /api/v1/openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 40)
    gone = select.poll()
    gone.register(deaf, select.POLLRDHUP | select.POLLHUP | select.POLLERR)
    assert gone.poll(1000 * PATIENCE), "the kernel buffers a few of the forty answers"
    assert is_answered(connect(coordinator, stack))


@pytest.mark.parametrize("size_bytes", [0, 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES])
@pytest.mark.parametrize("more_body", [False, True])
def test_a_response_is_sent_in_pieces_of_which_the_server_buffers_one(
    size_bytes: int, more_body: bool
) -> None:
    content = bytes(range(256)) * (size_bytes // 256) + b"x" * (size_bytes % 256)
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/",
        "raw_path": b"/",
        "query_string": b"",
        "headers": [],
    }
    pieces: list[dict[str, Any]] = []

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.body", "body": content, "more_body": more_body})

    async def collect(message: Any) -> None:
        pieces.append(message)

    anyio.run(RequestLimits(app), scope, None, collect)  # type: ignore[arg-type]
    assert b"".join(piece["body"] for piece in pieces) == content
    assert all(len(piece["body"]) <= PIECE_BYTES for piece in pieces)
    *others, last = [piece["more_body"] for piece in pieces]
    assert (all(others), last) == (True, more_body)
