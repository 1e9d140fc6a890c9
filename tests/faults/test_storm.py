"""Kills at random: no candidate lost or doubled, every job done, nothing left lying after the next start."""

from pathlib import Path

import pytest

from benchmarks.storm.run import Damage, Weather, storm, told
from tests.fixtures.service import JOB_SEC, networks

__all__ = ["networks"]  # a fixture
GENTLE = Weather(seed=1, candidates=48, jobs=2, real=0, pause_sec=5.0, storm_sec=30.0, calm_sec=JOB_SEC)


@pytest.fixture(scope="module")
def damage(networks: Path, tmp_path_factory: pytest.TempPathFactory) -> Damage:
    found = storm(GENTLE, networks / "tiny.onnx", tmp_path_factory.mktemp("storm"))
    print("\n".join(told(GENTLE, found)))
    return found


def test_a_storm_loses_and_doubles_nothing_and_ends_every_job_well(damage: Damage) -> None:
    assert damage.blows > 0
    assert (damage.lost, damage.doubled, damage.failed, damage.unended) == (0, 0, {}, [])
    assert damage.trials == GENTLE.candidates


def test_nothing_is_left_after_the_next_start(damage: Damage) -> None:
    assert (damage.left_processes, damage.left_files) == (0, [])
