"""A process that held one engine holds the next of its kind: nothing starts anew between comparisons."""

from pathlib import Path

import pytest

from mallorn.workers.whole_model.compiled_model import ONNXRUNTIME, IdleEngines
from tests.fixtures.made_up_engines import MadeUpEngine


def engine(name: str) -> MadeUpEngine:
    return MadeUpEngine(name=name, room=Path("/"))


def test_one_that_was_put_away_is_taken_once() -> None:
    with IdleEngines() as idle:
        mine = engine("mine")
        idle.suspend_engine("tvm", mine)
        assert idle.resume_engine("tvm") is mine
        assert idle.resume_engine("tvm") is None


def test_it_serves_its_own_kind_alone() -> None:
    with IdleEngines() as idle:
        idle.suspend_engine(ONNXRUNTIME, engine("rival"))
        assert idle.resume_engine("tvm") is None


def test_one_that_died_meanwhile_is_not_handed_out() -> None:
    with IdleEngines() as idle:
        dead, alive = engine("dead"), engine("alive")
        idle.suspend_engine("tvm", alive)
        idle.suspend_engine("tvm", dead)
        dead.kill()
        assert idle.resume_engine("tvm") is alive


@pytest.mark.parametrize("failed", [False, True])
def test_all_end_with_the_block(failed: bool) -> None:
    waiting = engine("waiting")
    try:
        with IdleEngines() as idle:
            idle.suspend_engine("tvm", waiting)
            assert waiting.alive
            if failed:
                raise RuntimeError
    except RuntimeError:
        pass
    assert not waiting.alive
