"""Time that a candidate may take on a device, and that a round may spend on timings again."""

import time
from math import exp, prod
from typing import Final

from costmodels.base import FAILED_LABEL
from mallorn.core.job_options import EvaluatorOptions, JobOptions
from workers.measure.base import Program

# What is not the candidate's own time: upload, a slow network, threads waiting for cores that others have.
OVERHEAD_SEC: Final = 5.0
# Slower than this, a candidate teaches a cost model as much as one that failed.
HOPELESS: Final = exp(-FAILED_LABEL)
# What the slowest sane kernel does, unscheduled on one slow core; moving an element counts as an operation.
SLOWEST_OPS_PER_US: Final = 100.0
# Unmeasured runs: a rough idea is two, and each timing begins with one. Busy hosts take their share.
EXTRA_RUNS: Final = 4
SLACK: Final = 2.0


def run_timeout_sec(program: Program, options: JobOptions, best_us: float | None) -> float:
    """The job's own limit, or less where a candidate that takes that long has lost long before."""
    evaluator = options.evaluator
    run_us = work(program) / SLOWEST_OPS_PER_US if best_us is None else HOPELESS * best_us
    runs = evaluator.number * evaluator.repeat + EXTRA_RUNS
    timing_sec = SLACK * evaluator.repeat * evaluator.min_repeat_ms / 1e3
    return min(options.run_timeout_sec, OVERHEAD_SEC + timing_sec + runs * run_us / 1e6)


def work(program: Program) -> float:
    """Operations of a program, at least one for every element of its arguments."""
    return program.flops + sum(prod(tensor.shape) for tensor in program.args.args)


# Of the seconds that the round has taken so far: it lasts twice as long at most.
SHARE: Final = 0.5


class Retakes:
    """The budget of one round. A candidate may always be timed once more."""

    def __init__(self, evaluator: EvaluatorOptions, least_sec: float = 0.0) -> None:
        self._least_sec = max(least_sec, evaluator.repeat * evaluator.min_repeat_ms / 1e3)
        self._began_sec = time.monotonic()
        self._lost_sec = 0.0

    def left_sec(self) -> float:
        """What the next candidate may lose."""
        so_far_sec = time.monotonic() - self._began_sec
        return max(self._least_sec, SHARE * so_far_sec - self._lost_sec)

    def lose(self, lost_sec: float) -> None:
        self._lost_sec += lost_sec
