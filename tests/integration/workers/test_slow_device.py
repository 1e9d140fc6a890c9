"""A job on a device that ends candidates in the middle of their timing goes on to its end."""

from collections import Counter
from collections.abc import Generator, Sequence
from pathlib import Path

import pytest

from mallorn.core.job_options import JobOptions
from mallorn.core.outcomes import Outcome
from mallorn.core.registry import REGISTRY
from mallorn.core.states import JobState
from mallorn.core.targets import Target
from mallorn.workers.measure.build_candidates import BuiltCandidate
from mallorn.workers.measure.device_runs import DeviceRuns
from mallorn.workers.measure.measurer_interface import MeasureInput, MeasureResult, Program
from tests.fixtures.faulty_device import FaultyDevice, dies, offering
from tests.fixtures.waiting import PATIENCE
from tests.fixtures.workshop import MadeUpMeasurer


class SlowForEveryOther(FaultyDevice):
    """Its alarm ends every other candidate once a rough idea of its time is had."""

    def __init__(self) -> None:
        super().__init__("mallorn.time_slices", dies("killed by SIGALRM"))
        self.begun = 0

    def strikes(self, call: str) -> bool:
        self.begun += call == "mallorn.begin"
        return call == self.call and self.begun % 2 == 0


class OnSlowDevice(MadeUpMeasurer):
    """Builds nothing; what times is the runner's own code."""

    def measure(
        self,
        program: Program,
        target: Target,
        inputs: Sequence[MeasureInput],
        options: JobOptions,
        best_us: float | None = None,
    ) -> Generator[MeasureResult, None, None]:
        with offering(SlowForEveryOther()) as runner:
            timing = DeviceRuns(runner, "tracker:1", target, program, options, PATIENCE, best_us)
            for slot in inputs:
                yield timing.measure(BuiltCandidate(slot, Path(__file__), (), 1.0))


@pytest.mark.parametrize("stopping", ["fixed", "racing"])
def test_it_is_tuned_to_its_budget_with_failed_trials(workshop, monkeypatch, stopping):
    monkeypatch.setitem(REGISTRY["measurer"], "made-up", f"{__name__}:OnSlowDevice")
    job = workshop.job(("w0",), trials=16, stopping=stopping)
    workshop.work(job)
    assert workshop.state(job) == JobState.FINISHING
    assert Counter(row.outcome for row in workshop.rows()) == {Outcome.OK: 8, Outcome.RUN_TIMEOUT: 8}
