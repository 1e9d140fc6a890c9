"""What a device's session sends to its client: answers pass, and nothing else reaches TVM's client."""

import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from mallorn.workers.device.rpc_handshake import read_greeting, send_greeting
from mallorn.workers.device.session_gateway import PACKET_LIMIT_BYTES, _accept_client, _relay
from mallorn.workers.device.tracker_client import receive_exactly
from tests.fixtures.waiting import PATIENCE

ROOT = Path(__file__).resolve().parents[2]
# TVM's client, in a process of its own: its destructors wait for answers and hold Python's lock meanwhile.
CLIENT = """
import sys
from tvm import rpc
rpc.connect("127.0.0.1", int(sys.argv[1]), sys.argv[2])
"""
INIT_SERVER, CALL_FUNC, RETURN, EXCEPTION, COPY_FROM, COPY_TO, COPY_ACK, GET_GLOBAL = range(2, 10)
TICKET = "ticket"


def packet(end: socket.socket) -> bytes:
    """One packet of TVM's protocol, with its length in front."""
    head = receive_exactly(end, 8)
    return head + receive_exactly(end, struct.unpack("<Q", head)[0])


def code_of(data: bytes) -> int:
    return int(struct.unpack_from("<i", data, 8)[0])


class HostileSession:
    """A session that answers the client's InitServer with an InitServer of its own."""

    def __init__(self) -> None:
        self.answer: bytes | None = None

    def serve(self, end: socket.socket) -> None:
        end.settimeout(PATIENCE)
        with end, suppress(OSError):
            end.sendall(packet(end))  # what the client has just asked of us
            self.answer = packet(end)


@contextmanager
def in_thread(work: Callable[[], None]) -> Iterator[None]:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    yield
    thread.join(PATIENCE)
    assert not thread.is_alive()


def connecting(port: int) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", CLIENT, str(port), TICKET]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=PATIENCE)


def test_tvms_client_obeys_its_peer_where_nothing_filters() -> None:
    hostile = HostileSession()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            end, _ = listener.accept()
            assert read_greeting(end) == f"client:{TICKET}"
            send_greeting(end, "server:x")
            hostile.serve(end)

        with in_thread(serve):
            connecting(listener.getsockname()[1])
    assert hostile.answer is not None
    assert code_of(hostile.answer) == RETURN, "it did what it was told"


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()
    return near, far


@contextmanager
def relayed() -> Iterator[tuple[int, socket.socket, socket.socket]]:
    """The port of a relay, the far end of its device's connection, and the end of its runner."""
    near, far = tcp_pair()
    listener = socket.create_server(("127.0.0.1", 0))
    watched, runner = socket.socketpair()
    with (
        in_thread(lambda: _relay(lambda: _accept_client(listener, TICKET, watched, watched.dup()), near)),
        far,
        runner,
    ):
        yield listener.getsockname()[1], far, runner


def test_a_session_that_commands_its_client_is_ended_before_the_client_hears_it() -> None:
    hostile = HostileSession()
    with relayed() as (port, far, _), in_thread(lambda: hostile.serve(far)):
        ended = connecting(port)
    assert "Check failed" in ended.stderr, "it only sees that the connection was closed"
    assert hostile.answer is None


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A client behind a relay, and the session that it speaks to."""
    with relayed() as (port, far, _), socket.create_connection(("127.0.0.1", port), PATIENCE) as client:
        send_greeting(client, f"client:{TICKET}")
        assert read_greeting(client) == "gateway"
        far.settimeout(PATIENCE)
        yield client, far


@pytest.mark.parametrize("code", [INIT_SERVER, CALL_FUNC, COPY_FROM, COPY_TO, GET_GLOBAL, 0, 1, 1000, -1])
def test_what_is_no_answer_ends_the_session(ends: tuple[socket.socket, socket.socket], code: int) -> None:
    client, session = ends
    session.sendall(struct.pack("<Qi", 4, code))
    assert client.recv(1) == b""
    assert session.recv(1) == b""


@pytest.mark.parametrize("size", [0, 3, PACKET_LIMIT_BYTES + 1, 2**64 - 1])
def test_a_packet_of_no_possible_size_ends_the_session(
    ends: tuple[socket.socket, socket.socket], size: int
) -> None:
    client, session = ends
    session.sendall(struct.pack("<Qi", size, RETURN))
    assert client.recv(1) == b""


def test_answers_of_any_size_pass_whole_and_so_do_calls(ends: tuple[socket.socket, socket.socket]) -> None:
    client, session = ends
    answers = [
        struct.pack("<Qi", 4 + size, code) + b"x" * size for size, code in ((0, 4), (1, 5), (900_000, 8))
    ]
    sender = threading.Thread(target=lambda: [session.sendall(each) for each in answers])
    sender.start()
    assert [packet(client) for _ in answers] == answers
    sender.join()
    client.sendall(b"anything")
    assert receive_exactly(session, 8) == b"anything"


def test_a_client_that_goes_away_is_gone_for_its_session_too(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    client, session = ends
    client.close()
    assert session.recv(1) == b""


def test_a_session_is_for_nobody_without_the_ticket() -> None:
    with relayed() as (port, far, runner):
        with socket.create_connection(("127.0.0.1", port), PATIENCE) as stranger:
            send_greeting(stranger, "client:guess")
            assert stranger.recv(1) == b""
        runner.close()
        assert far.recv(1) == b"", "a runner that died leaves its device to others"
