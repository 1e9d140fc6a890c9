"""The health checks of tracker and device in the compose file, run against a real tracker."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from mallorn.core.targets import Target
from tests.fixtures.command_line import ROOT, clean_environment
from tests.fixtures.fleet import TestFleet

SERVICES: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]


def is_healthy(service: str, fleet: TestFleet, folder: Path) -> bool:
    """Run the health check of a service with the fleet's tracker in the place of the container's."""
    kind, python, option, program = SERVICES[service]["healthcheck"]["test"]
    assert (kind, python, option) == ("CMD", "python", "-c")
    assert "('tracker', 9190)" in program
    address = ("127.0.0.1", fleet.tracker.port)
    done = subprocess.run(
        [sys.executable, "-c", program.replace("('tracker', 9190)", repr(address))],
        env=clean_environment(MALLORN_RPC_KEY=fleet.key, MALLORN_DATA_DIR=str(folder)),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "ImportError" not in done.stderr, done.stderr
    return done.returncode == 0


@pytest.mark.parametrize(("service", "healthy"), [("tracker", True), ("device", False)])
def test_a_tracker_without_devices_is_healthy_and_a_device_that_is_not_registered_is_not(
    lone_tracker: TestFleet, tmp_path: Path, service: str, healthy: bool
) -> None:
    assert is_healthy(service, lone_tracker, tmp_path) is healthy


@pytest.mark.parametrize("service", ["tracker", "device"])
def test_a_registered_device_is_healthy(
    fleet: TestFleet, local_target: Target, tmp_path: Path, service: str
) -> None:
    assert is_healthy(service, fleet, tmp_path)


def test_a_tracker_that_has_ended_is_not_healthy(lone_tracker: TestFleet, tmp_path: Path) -> None:
    lone_tracker.tracker.kill()
    assert not is_healthy("tracker", lone_tracker, tmp_path)
