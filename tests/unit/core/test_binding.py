"""Addresses that are open to others, for the stack and the coordinator alike."""

import pytest

from mallorn.core.address_checks import check_binding, is_loopback
from mallorn.core.errors import InvalidRequest
from mallorn.core.settings import Settings
from mallorn.services.coordinator.serve import serve


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.5", "example.org", ""])
def test_beyond_loopback_a_key_is_needed(host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(InvalidRequest, match="no API key"):
        check_binding(host, has_keys=False)
    check_binding(host, has_keys=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_loopback_needs_no_key(host: str) -> None:
    assert is_loopback(host)
    check_binding(host, has_keys=False)


def test_the_coordinator_itself_checks_what_it_binds() -> None:
    with pytest.raises(InvalidRequest, match="no API key"):
        serve(Settings(host="0.0.0.0"))
