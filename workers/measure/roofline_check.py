"""Times that a device's own machine cannot reach: whoever tells one is not believed."""

from dataclasses import replace
from typing import Final

from mallorn.core.outcomes import Outcome
from mallorn.core.values.machine import Machine, peak_gflops
from mallorn.core.values.trial import Trial
from workers.measure.base import MeasureResult, Program

#: Times the peak. Winograd's products do up to four times less than what is counted, a type whose peak is
#: not known runs up to four times faster than float32, and a peak measured beside another program is a half.
BEYOND: Final = 4 * 4 * 2
#: How the error of a refused run begins.
REFUSED: Final = "beyond its machine: "


def least_believed_us(program: Program, machine: Machine | None) -> float:
    """Below this no time is believed; 0 where the machine was not measured, or nothing is computed."""
    if machine is None or not machine.measured:
        return 0.0
    peak = peak_gflops(machine, {dtype for _, dtype, _ in program.args.args})
    return program.flops / peak / 1e3 / BEYOND


def reject_implausible(result: MeasureResult, least_us: float) -> MeasureResult:
    """The result; a failed one in its place where its time is less than the least."""
    told_us = result.trial.latency_us
    if told_us is None or told_us >= least_us:
        return result
    words = f"{REFUSED}the device tells {told_us:.3g} us for what takes more than {least_us:.3g} us"
    failed = Trial(result.trial.candidate, Outcome.RUN_ERROR, build_ms=result.trial.build_ms, error=words)
    return replace(result, trial=failed)
