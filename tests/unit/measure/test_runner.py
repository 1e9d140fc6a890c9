"""Whose fault it is that a timing ends early: the candidate's, unless the stopping rule itself raised."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tvm.error import RPCError

from mallorn.core.errors import PluginFailed
from mallorn.core.job_options import EvaluatorOptions
from mallorn.core.outcomes import Outcome
from mallorn.workers.device.rpc_handshake import DEATH_NOTICE
from mallorn.workers.device.slice_timing_result import SliceTimes
from mallorn.workers.interfaces.device_runner import LibraryRun
from mallorn.workers.interfaces.tensor_arguments import Arguments
from mallorn.workers.measure.stopping import StoppingRule
from mallorn.workers.tvm import runner_child
from mallorn.workers.tvm.sessions.remote_device import CandidateTimeout

WHERE = ("tracker", "llvm")


class Hasty(StoppingRule):
    """Does not get far."""

    def next_timing(
        self, evaluator: EvaluatorOptions, run_us: Sequence[float], best_us: float | None = None
    ) -> EvaluatorOptions | None:
        raise RuntimeError("no time for this")


class SlowOnTheDevice:
    """A device whose alarm ends whatever is timed for longer than the rough idea of it."""

    entry, device = "main", "cpu"

    def run(self, _artifact: Path, _key: str, _timeout_sec: float, work: Callable[[Any], list[float]]) -> Any:
        try:
            return work(self)
        except RPCError as error:
            raise CandidateTimeout("did not return in time") from error

    def random_args(self, _args: Arguments) -> list[Any]:
        return []

    def time_evaluator(self, *_call: str, **_evaluator: int) -> Callable[..., SimpleNamespace]:
        return lambda *_args: SimpleNamespace(results=[1e-3])

    def time_slices(self, *_call: Any, cold: bool) -> SliceTimes:
        raise RPCError(f"{DEATH_NOTICE} killed by SIGALRM")

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def _held(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(runner_child.open_devices, WHERE, SlowOnTheDevice())  # type: ignore[arg-type]
    yield
    runner_child.release_devices()


def measured_by(stopping: str) -> LibraryRun:
    return runner_child.time_candidate(
        *WHERE, "a.so", Arguments(()), EvaluatorOptions(), stopping, "key", 1.0, 1.0
    )


@pytest.mark.parametrize("stopping", ["fixed", "adaptive", "racing"])
def test_a_candidate_that_is_ended_while_it_is_timed_is_a_failed_trial(stopping: str) -> None:
    run = measured_by(stopping)
    assert run.outcome is Outcome.RUN_TIMEOUT
    assert "did not return in time" in run.error


def test_a_stopping_rule_that_itself_raises_is_told_as_such() -> None:
    with pytest.raises(PluginFailed, match=r"Hasty raised RuntimeError: no time for this") as told:
        measured_by(f"{__name__}:Hasty")
    assert told.value.seam == "stopping"
