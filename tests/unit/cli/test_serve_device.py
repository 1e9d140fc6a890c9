"""`mallorn device`: in which sandbox its sessions work."""

import pytest

from mallorn.cli.run_service_part import choose_sandbox_mode
from mallorn.core.settings import Settings
from tests.fixtures.coordinator import Coordinator

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


def test_a_device_on_loopback_requires_the_sandbox_once_callers_need_keys(coordinator: Coordinator) -> None:
    config = Settings(database_url=coordinator.database.url)
    assert choose_sandbox_mode(config, "127.0.0.1") == "best-effort"
    coordinator.new_key("ada")
    assert choose_sandbox_mode(config, "127.0.0.1") == "require"
    assert choose_sandbox_mode(config.model_copy(update={"sandbox": "off"}), "127.0.0.1") == "off"


def test_a_device_for_other_hosts_requires_the_sandbox(coordinator: Coordinator) -> None:
    assert choose_sandbox_mode(Settings(database_url=coordinator.database.url), "10.0.0.1") == "require"
