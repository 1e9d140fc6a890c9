"""The kernel says which user is at the other end of a connection, whatever that user does."""

import os
import socket
import struct
from collections.abc import Iterator

import pytest

import mallorn.core.address_checks as socket_users
from mallorn.services.coordinator.web.authenticator import LocalPeer
from tests.fixtures.users import NOBODY, as_user, only_root


@pytest.fixture(params=["diagnosed", "listed"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that is asked for one socket, and one that only lists them, as gVisor's."""
    if request.param == "listed":
        monkeypatch.setattr(socket_users, "_query_socket_by_netlink", _not_supported)


def _not_supported(*_: object) -> None:
    raise OSError("Protocol not supported")


FAMILIES = [
    ("127.0.0.1", "127.0.0.1"),
    ("127.0.0.1", "::ffff:127.0.0.1"),
    ("::1", "::1"),
    ("::", "127.0.0.1"),
]


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


@only_root
@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize(("bound", "called"), FAMILIES)
def test_the_kernel_names_the_user_at_the_other_end(bound: str, called: str) -> None:
    family = socket.AF_INET6 if ":" in bound else socket.AF_INET
    with socket.create_server((bound, 0), family=family, dualstack_ipv6=bound == "::") as listening:
        port, (reading, writing) = listening.getsockname()[1], os.pipe()

        def look() -> None:
            with _connected(called, port) as connection:
                os.read(reading, 1)  # until its user was looked up
                connection.close()

        child = os.fork()
        if not child:
            os._exit(as_user(NOBODY, look))
        ours, _ = listening.accept()
        with ours:
            assert LocalPeer(ours).uid == NOBODY
        os.write(writing, b"x")
        assert os.waitpid(child, 0)[1] == 0
        with _connected(called, port), listening.accept()[0] as own:
            assert LocalPeer(own).uid == os.getuid()


@only_root
@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("reset", [False, True])
def test_who_closes_at_once_is_nobody_and_not_root(listener: socket.socket, reset: bool) -> None:
    """Of a socket that nobody holds the kernel says that it is root's."""
    assert as_user(NOBODY, lambda: _ask_and_go(listener.getsockname()[1], 0, reset)) == 0
    ours, _ = listener.accept()
    with ours:
        assert LocalPeer(ours).uid is None


@only_root
@pytest.mark.usefixtures("kernel")
def test_who_has_the_port_next_is_not_taken_for_who_asked(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    with socket.create_server(("127.0.0.1", 0)) as free:
        theirs = free.getsockname()[1]
    assert as_user(NOBODY, lambda: _ask_and_go(port, theirs, reset=True)) == 0
    with _connected("127.0.0.1", port, theirs):
        (first, came_from), (second, came_next) = listener.accept(), listener.accept()
        with first, second:
            assert came_from == came_next == ("127.0.0.1", theirs)
            assert LocalPeer(second).uid == os.getuid()
            assert LocalPeer(first).uid is None


def _ask_and_go(port: int, own_port: int, reset: bool) -> None:
    with _connected("127.0.0.1", port, own_port) as connection:
        connection.sendall(b"DELETE /api/v1/jobs/1 HTTP/1.1\r\n\r\n")
        if reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _connected(host: str, port: int, own_port: int = 0) -> socket.socket:
    connection = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if own_port:
        connection.bind((host, own_port))
    connection.connect((host, port))
    return connection
