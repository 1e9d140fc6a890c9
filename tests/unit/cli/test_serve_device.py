"""`mallorn device`: in which sandbox its sessions work."""

import pytest

from mallorn.cli.run_service_part import choose_sandbox_mode
from mallorn.core.errors import InvalidRequest
from mallorn.core.settings import Settings
from tests.fixtures.coordinator import Coordinator

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


def test_a_device_on_loopback_requires_the_sandbox_once_callers_need_keys(coordinator: Coordinator) -> None:
    config = Settings(database_url=coordinator.database.url)
    assert choose_sandbox_mode(config, "127.0.0.1") == "best-effort"
    coordinator.new_key("ada")
    assert choose_sandbox_mode(config, "127.0.0.1") == "require"
    assert choose_sandbox_mode(config.model_copy(update={"sandbox": "off"}), "127.0.0.1") == "off"


@pytest.mark.parametrize(
    "host", ["10.0.0.7", "172.16.3.1", "192.168.1.20", "169.254.7.7", "fd00::7", "fe80::1"]
)
def test_on_a_private_network_a_device_goes_on_with_an_older_kernel(
    coordinator: Coordinator, host: str
) -> None:
    config = Settings(database_url=coordinator.database.url)
    assert choose_sandbox_mode(config, host) == "require-files"
    for mode in ("require", "best-effort", "off"):
        assert choose_sandbox_mode(config.model_copy(update={"sandbox": mode}), host) == mode


@pytest.mark.parametrize("host", ["100.64.0.7", "198.18.0.1"])
def test_where_strangers_may_be_neighbours_a_device_requires_the_sandbox(
    coordinator: Coordinator, host: str
) -> None:
    assert choose_sandbox_mode(Settings(database_url=coordinator.database.url), host) == "require"


def test_a_device_of_a_service_with_keys_requires_the_sandbox_on_a_private_network_too(
    coordinator: Coordinator,
) -> None:
    config = Settings(database_url=coordinator.database.url)
    assert (
        choose_sandbox_mode(config.model_copy(update={"api_keys": {"ada": "a" * 43}}), "10.0.0.7")
        == "require"
    )
    coordinator.new_key("ada")
    assert choose_sandbox_mode(config, "10.0.0.7") == "require"


def test_a_public_address_is_refused(coordinator: Coordinator) -> None:
    with pytest.raises(InvalidRequest, match="is public"):
        choose_sandbox_mode(Settings(database_url=coordinator.database.url), "8.8.8.8")
