"""What a tracker or a client that is none of ours can say: it ends its connection, and nothing else."""

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from mallorn.core.errors import Unavailable
from mallorn.core.fleet_key import FleetKey
from mallorn.workers.device.tracker_client import TRACKER_MAGIC, Address, TrackerClient, receive_exactly
from tests.fixtures.waiting import PATIENCE

KEY = FleetKey("k" * 32)
INT = struct.Struct("<i")


@contextmanager
def peer(talk: Callable[[socket.socket], None]) -> Iterator[Address]:
    """Something that listens and talks to the first who comes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            end, _ = listener.accept()
            with end, suppress(OSError):
                talk(end)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield listener.getsockname()[:2]
    thread.join(PATIENCE)


def rogue_tracker(answer: bytes) -> Callable[[socket.socket], None]:
    def talk(end: socket.socket) -> None:
        receive_exactly(end, INT.size)
        end.sendall(INT.pack(TRACKER_MAGIC) + INT.pack(len(answer)) + answer)
        end.recv(1024)

    return talk


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"\xff\xfe{", id="no text"),
        pytest.param(b"{", id="no JSON"),
        pytest.param(b"[" * 200_000, id="too deep"),
        pytest.param(b"0", id="a number"),
        pytest.param(b"[1, 2]", id="too few"),
        pytest.param(json.dumps([None, None, None]).encode(), id="nothing"),
        pytest.param(json.dumps(["\ud800", True, "\ud800"]).encode(), id="half a character"),
    ],
)
def test_a_tracker_that_talks_nonsense_is_unavailable(answer: bytes) -> None:
    with peer(rogue_tracker(answer)) as address, pytest.raises(Unavailable):
        TrackerClient(address, PATIENCE, KEY)


def test_who_sends_a_byte_now_and_then_does_not_hold_us() -> None:
    done = threading.Event()

    def drip(end: socket.socket) -> None:
        while not done.wait(0.02):
            end.sendall(b"x")

    with peer(drip) as address, socket.create_connection(address, PATIENCE) as end:
        end.settimeout(0.2)
        with pytest.raises(TimeoutError):
            receive_exactly(end, 1000)
        done.set()
