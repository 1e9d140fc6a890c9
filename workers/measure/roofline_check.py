"""Rejects reported times that are too short for the peak speed of the device's machine."""

from dataclasses import replace
from typing import Final

from mallorn.core.outcomes import Outcome
from mallorn.core.values.machine import Machine, peak_gflops
from mallorn.core.values.trial import Trial
from mallorn.workers.measure.measurer_interface import MeasureResult, Program

#: A time that implies more than this multiple of the peak is rejected. Winograd computes up to four
#: times less than is counted, a type of unknown peak runs up to four times faster than float32, and a
#: peak that was measured while another program ran may be half of the true one.
BEYOND: Final = 4 * 4 * 2
#: How the error of a rejected run begins.
REFUSED: Final = "beyond its machine: "


def shortest_plausible_us(program: Program, machine: Machine | None) -> float:
    """Return the shortest plausible time in microseconds; 0 if no peak is known."""
    if machine is None or not machine.measured:
        return 0.0
    peak = peak_gflops(machine, {dtype for _, dtype, _ in program.args.args})
    return program.flops / peak / 1e3 / BEYOND


def reject_implausible(result: MeasureResult, least_us: float) -> MeasureResult:
    """Return `result`, or a failed one if its time is shorter than `least_us`."""
    run_us = result.trial.latency_us
    if run_us is None or run_us >= least_us:
        return result
    words = f"{REFUSED}the device reports {run_us:.3g} us, but the candidate takes at least {least_us:.3g} us"
    failed = Trial(result.trial.candidate, Outcome.RUN_ERROR, build_ms=result.trial.build_ms, error=words)
    return replace(result, trial=failed)
