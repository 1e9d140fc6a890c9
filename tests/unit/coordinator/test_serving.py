"""Which addresses the coordinator agrees to bind."""

import pytest

from mallorn.core.errors import InvalidRequest
from mallorn.core.settings import Settings
from services.coordinator.serving import check_binding

HASHES = {"ada": "0" * 64}


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "gpu-rack.example"])
def test_nothing_binds_beyond_loopback_without_a_key(host: str) -> None:
    with pytest.raises(InvalidRequest, match="no API key"):
        check_binding(Settings(host=host))
    check_binding(Settings(host=host, api_keys=HASHES))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_loopback_needs_no_key(host: str) -> None:
    check_binding(Settings(host=host))
