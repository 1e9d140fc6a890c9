"""Ports that are taken."""

import os
import socket

import pytest

from mallorn.core.address_checks import check_or_choose_port, free_port
from mallorn.core.errors import InvalidRequest

# An address of this process's own: on 127.0.0.1 somebody may take a port as soon as it is free.
LOOPBACK = f"127.{os.getpid() >> 16 & 255}.{os.getpid() >> 8 & 255}.{os.getpid() & 255 or 1}"


def test_a_taken_port_is_refused_with_a_way_out() -> None:
    with socket.create_server((LOOPBACK, 0)) as server:
        taken = server.getsockname()[1]
        with pytest.raises(InvalidRequest, match=f"port {taken} .* is taken") as refusal:
            check_or_choose_port(LOOPBACK, taken)
    assert "--port 0" in refusal.value.hint


def test_port_zero_takes_a_free_one() -> None:
    port = check_or_choose_port(LOOPBACK, 0)
    assert check_or_choose_port(LOOPBACK, port) == port


def test_a_port_that_was_given_away_is_not_given_again() -> None:
    given = {port for port in range(2**16) if port % 3}
    assert free_port(excluded=given) % 3 == 0


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"cannot bind 192\.0\.2\.1"):
        check_or_choose_port("192.0.2.1", 8000)
