"""A time that the device's own machine cannot reach is a failed run."""

import pytest

from mallorn.core.outcomes import Outcome
from mallorn.core.values.candidate import Candidate
from mallorn.core.values.machine import Machine, assume_typical_cpu
from mallorn.core.values.trial import Trial
from mallorn.workers.interfaces.tensor_arguments import Arguments
from mallorn.workers.measure.measurer_interface import MeasureResult, Program
from mallorn.workers.measure.roofline_check import BEYOND, reject_implausible, shortest_plausible_us

HERE = assume_typical_cpu(cores=2, lanes=8).model_copy(update={"measured": True})
PEAK_US = 100.0  # what the program takes at the machine's peak


def program(dtype: str = "float32") -> Program:
    flops = PEAK_US * 1e3 * HERE.gflops["float32"]
    return Program("w0", "{}", Arguments((("a", dtype, (64, 64)),)), flops)


def told(latency_us: float) -> MeasureResult:
    return MeasureResult(3, Trial(Candidate("s0", (1,)), Outcome.OK, run_us=(latency_us,), build_ms=2.0))


def test_a_time_far_beyond_the_peak_is_a_failed_run() -> None:
    least_us = shortest_plausible_us(program(), HERE)
    found = reject_implausible(told(PEAK_US / 100), least_us)
    assert (found.slot, found.trial.outcome, found.trial.latency_us) == (3, Outcome.RUN_ERROR, None)
    assert (
        found.trial.error
        == "beyond its machine: the device reports 1 us, but the candidate takes at least 3.12 us"
    )
    assert found.trial.build_ms == 2.0


@pytest.mark.parametrize("share", [1.0, 0.5, 1.0 / BEYOND])
def test_what_a_machine_may_do_is_believed(share: float) -> None:
    honest = told(PEAK_US * share)
    assert reject_implausible(honest, shortest_plausible_us(program(), HERE)) is honest


def test_a_failure_stays_what_it_is() -> None:
    failed = MeasureResult(0, Trial(Candidate("s0", (1,)), Outcome.WRONG_RESULT))
    assert reject_implausible(failed, shortest_plausible_us(program(), HERE)) is failed


@pytest.mark.parametrize("machine", [None, HERE.model_copy(update={"measured": False})])
def test_without_a_measured_machine_nothing_is_too_fast(machine: Machine | None) -> None:
    assert shortest_plausible_us(program(), machine) == 0.0
