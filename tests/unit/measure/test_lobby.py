"""Connections that say nothing: bounded in number and time, and in nobody's way."""

import socket
import struct
from collections.abc import Callable, Iterator

import pytest

from mallorn.workers.device import pending_connections
from mallorn.workers.device.pending_connections import (
    MOST,
    MOST_OF_AN_ADDRESS,
    PendingConnections,
    Unauthenticated,
)
from mallorn.workers.device.tracker_client import RPC_MAGIC
from tests.fixtures.waiting import wait_for

Knock = Callable[[], socket.socket]
GREETING = struct.pack("<ii", RPC_MAGIC, 8) + b"client:x"


class Guest:
    """Knows whether it was turned out."""

    closed = False

    def close(self) -> None:
        self.closed = True


def admitted(count: int, address: Callable[[int], str]) -> list[Guest]:
    waiting, guests = Unauthenticated(), [Guest() for _ in range(count)]
    for number, guest in enumerate(guests):
        waiting.add(guest, address(number))
    return guests


def test_the_oldest_of_an_address_makes_room() -> None:
    guests = admitted(MOST_OF_AN_ADDRESS + 3, lambda _: "here")
    assert [guest.closed for guest in guests] == [True] * 3 + [False] * MOST_OF_AN_ADDRESS


def test_the_oldest_of_all_makes_room_where_no_address_has_more_than_others() -> None:
    guests = admitted(MOST + 3, str)
    assert [guest.closed for guest in guests] == [True] * 3 + [False] * MOST


def test_many_addresses_turn_out_none_that_waits_alone() -> None:
    guests = admitted(10 * MOST, lambda number: f"flood {number % 20}" if number else "honest")
    assert not guests[0].closed
    assert sum(not guest.closed for guest in guests) == MOST


def test_many_of_an_address_turn_out_no_other() -> None:
    guests = admitted(10 * MOST, lambda number: "flood" if number else "honest")
    assert not guests[0].closed


def test_who_has_proven_itself_does_not_count() -> None:
    waiting, first = Unauthenticated(), Guest()
    waiting.add(first, "here")
    waiting.remove(first)
    for _ in range(2 * MOST):
        waiting.add(Guest(), "here")
    assert not first.closed


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=MOST) as listener:
        yield listener


@pytest.fixture
def hall(listener: socket.socket) -> PendingConnections:
    return PendingConnections(listener)


@pytest.fixture
def knock(listener: socket.socket, hall: PendingConnections) -> Iterator[Knock]:
    """Connects and is let in."""
    ends = []

    def knocked() -> socket.socket:
        end = socket.create_connection(listener.getsockname())
        ends.append(end)
        hall.accept()
        return end

    yield knocked
    hall.clear()
    for end in ends:
        end.close()


def heard(hall: PendingConnections) -> list[str]:
    found = [hall.read_greeting(number) for number in hall]
    for each in found:
        if each is not None:
            each[0].close()
    return [said for each in found if each is not None for said in [each[1]]]


def test_whoever_speaks_is_heard_past_those_who_do_not(hall: PendingConnections, knock: Knock) -> None:
    for _ in range(2 * MOST_OF_AN_ADDRESS):
        knock()
    knock().sendall(GREETING)
    said: list[str] = []
    wait_for(lambda: said.extend(heard(hall)) or said, "the one that speaks")
    assert said == ["client:x"]
    assert len(list(hall)) == MOST_OF_AN_ADDRESS - 1


def test_a_greeting_may_come_in_pieces(hall: PendingConnections, knock: Knock) -> None:
    end = knock()
    said: list[str] = []
    for byte in GREETING:
        assert said == []
        end.sendall(bytes([byte]))
        said += heard(hall)
    wait_for(lambda: said.extend(heard(hall)) or said, "all of it")
    assert said == ["client:x"]


@pytest.mark.parametrize(
    "noise", [b"GET / HTTP/1.1", GREETING[:4] + b"\xff\xff\xff\x7f", GREETING[:9] + b"\xff" * 7]
)
def test_noise_is_sent_away(hall: PendingConnections, knock: Knock, noise: bytes) -> None:
    knock().sendall(noise)
    wait_for(lambda: heard(hall) == [] and not list(hall), "it to be gone")


def test_who_says_nothing_for_too_long_is_sent_away(
    hall: PendingConnections, knock: Knock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending_connections, "PATIENCE_SEC", -1.0)
    end = knock()
    assert list(hall) == []
    assert end.recv(1) == b""
