"""Kills at random, and a Postgres that comes and goes: no candidate lost or doubled, every job done, nothing
left lying after the next start."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.storm.run import Damage, Weather, storm, told
from tests.fixtures.service import JOB_SEC, networks

__all__ = ["networks"]  # a fixture
pytestmark = pytest.mark.long
GENTLE = Weather(seed=1, candidates=48, jobs=2, real=0, pause_sec=5.0, storm_sec=30.0, calm_sec=JOB_SEC)
TWO_OF_EACH = replace(GENTLE, candidates=192, kills=False, restart_sec=(2.0, 6.0), twins=True)


def damage(weather: Weather, networks: Path, folder: Path) -> Damage:
    found = storm(weather, networks / "tiny.onnx", folder)
    print("\n".join(told(weather, found)))
    assert (found.lost, found.doubled, found.failed, found.unended) == (0, 0, {}, [])
    assert found.trials == weather.candidates
    assert (found.left_processes, found.left_files) == (0, [])
    return found


def test_kills_lose_and_double_nothing_and_leave_nothing(networks: Path, tmp_path: Path) -> None:
    assert damage(GENTLE, networks, tmp_path).blows > 0


def test_two_controls_on_a_postgres_that_is_restarted_lose_and_double_nothing(
    networks: Path, tmp_path: Path
) -> None:
    assert damage(TWO_OF_EACH, networks, tmp_path).database_restarts > 0
