"""Time limits of a candidate's run on a device, and of a round's repeated timings."""

import time
from math import exp, prod
from typing import Final

from mallorn.core.job_options import EvaluatorOptions, JobOptions
from mallorn.costmodels.base import FAILED_LABEL
from mallorn.workers.measure.measurer_interface import Program

# Time that is not the candidate's own: upload, a slow network, waiting for cores that are in use.
OVERHEAD_SEC: Final = 5.0
# A candidate so many times slower than the best teaches a cost model as much as one that failed.
HOPELESS: Final = exp(-FAILED_LABEL)
# Speed of the slowest sane kernel, unscheduled on one slow core; moving an element is an operation.
SLOWEST_OPS_PER_US: Final = 100.0
# Uncounted runs: two for a rough estimate, and one before each timing. SLACK is for busy hosts.
EXTRA_RUNS: Final = 4
SLACK: Final = 2.0


def run_timeout_sec(program: Program, options: JobOptions, best_us: float | None) -> float:
    """Return a run's limit in seconds: the job's, or less if slower ones cannot win."""
    evaluator = options.evaluator
    run_us = count_operations(program) / SLOWEST_OPS_PER_US if best_us is None else HOPELESS * best_us
    runs = evaluator.number * evaluator.repeat + EXTRA_RUNS
    timing_sec = SLACK * evaluator.repeat * evaluator.min_repeat_ms / 1e3
    return min(options.run_timeout_sec, OVERHEAD_SEC + timing_sec + runs * run_us / 1e6)


def count_operations(program: Program) -> float:
    """Return the operations of a program, plus one for every element of its arguments."""
    return program.flops + sum(prod(tensor.shape) for tensor in program.args.args)


# Share of a round's seconds so far that repeats may take: the round at most doubles.
SHARE: Final = 0.5


class Retakes:
    """Time that a round may spend on repeating disturbed timings, always enough for one."""

    def __init__(self, evaluator: EvaluatorOptions, least_sec: float = 0.0) -> None:
        self._least_sec = max(least_sec, evaluator.repeat * evaluator.min_repeat_ms / 1e3)
        self._began_sec = time.monotonic()
        self._lost_sec = 0.0

    def left_sec(self) -> float:
        """Return the seconds that repeats of the next candidate's timings may take."""
        so_far_sec = time.monotonic() - self._began_sec
        return max(self._least_sec, SHARE * so_far_sec - self._lost_sec)

    def charge_lost_time(self, lost_sec: float) -> None:
        self._lost_sec += lost_sec
