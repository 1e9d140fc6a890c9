"""Whose fault it is that a tracker is not reached, or a session not opened."""

import errno
import os
import socket
from unittest.mock import Mock

import pytest

from mallorn.core.errors import HostFault, Unavailable
from mallorn.workers.device.session_gateway import SessionGateway, ask_for_session
from mallorn.workers.device.tracker_client import TrackerClient

TRACKER = "127.0.0.1", 9190


@pytest.mark.parametrize(
    ("number", "kind", "words"),
    [
        (errno.EMFILE, HostFault, "too many open files"),
        (errno.ECONNREFUSED, Unavailable, "no tracker answers at 127.0.0.1:9190"),
    ],
)
def test_a_host_without_file_handles_is_at_fault_and_not_the_tracker(
    monkeypatch: pytest.MonkeyPatch, number: int, kind: type[Unavailable], words: str
) -> None:
    monkeypatch.setattr(socket, "create_connection", Mock(side_effect=OSError(number, os.strerror(number))))
    with pytest.raises(Unavailable, match=words) as caught:
        TrackerClient(TRACKER)
    assert type(caught.value) is kind


def test_a_worker_that_cannot_open_a_session_for_want_of_handles_says_so_to_its_runner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        socket, "create_server", Mock(side_effect=OSError(errno.EMFILE, os.strerror(errno.EMFILE)))
    )
    with SessionGateway().connect_runner() as end:
        for _ in range(2):  # it goes on answering
            with pytest.raises(HostFault, match="too many open files"):
                ask_for_session(end, TRACKER, "key", 1.0, None)
