"""Trackers and devices run what they are sent: they bind where no stranger comes by."""

import pytest

from mallorn.core.errors import InvalidRequest
from mallorn.core.fleet_key import FleetKey
from mallorn.workers.device.private_sockets import is_own_address, listen, private_address
from mallorn.workers.device.tracker_client import NO_KEY


@pytest.mark.parametrize(
    "host",
    ["0.0.0.0", "::", "8.8.8.8", "224.0.0.1", "2001:4860:4860::8888", "::ffff:0.0.0.0", "::ffff:8.8.8.8"],
)
def test_an_address_open_to_strangers_is_refused(host: str) -> None:
    with pytest.raises(InvalidRequest, match="is public"):
        private_address(host)


@pytest.mark.parametrize("host", ["127.0.0.1", "10.1.2.3", "192.168.7.1", "172.16.0.9", "100.64.0.1", "::1"])
def test_loopback_and_private_addresses_are_taken(host: str) -> None:
    assert private_address(host) == host


def test_a_name_that_resolves_to_nothing_is_said_so() -> None:
    with pytest.raises(InvalidRequest, match="cannot resolve"):
        private_address("no-such-host.invalid")


def test_a_port_in_use_is_passed_over() -> None:
    with listen("127.0.0.1", range(1), NO_KEY) as first:
        port = first.getsockname()[1]
        with listen("127.0.0.1", range(port, port + 50), NO_KEY) as second:
            assert port < second.getsockname()[1] < port + 50
        with pytest.raises(InvalidRequest, match=r"in use on 127\.0\.0\.1"):
            listen("127.0.0.1", range(port, port + 1), NO_KEY)


def test_a_host_knows_which_addresses_are_its_own() -> None:
    assert is_own_address("127.0.0.1")
    assert not is_own_address("192.0.2.1")


def test_other_machines_are_let_in_with_a_key_alone() -> None:
    with pytest.raises(InvalidRequest, match="the fleet has no key") as caught:
        listen("10.1.2.3", range(1), NO_KEY)
    assert "MALLORN_RPC_KEY" in caught.value.hint
    with pytest.raises(InvalidRequest, match=r"cannot listen on 10\.1\.2\.3"):
        listen("10.1.2.3", range(1), FleetKey("k" * 32))
