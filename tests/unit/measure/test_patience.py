"""How long a candidate may stay on a device."""

import pytest

from mallorn.core.job_options import EvaluatorOptions, JobOptions
from mallorn.workers.interfaces.tensor_arguments import Arguments, Tensor
from mallorn.workers.measure.measurer_interface import Program
from mallorn.workers.measure.run_timeout_and_retakes import HOPELESS, OVERHEAD_SEC, run_timeout_sec

OPTIONS = JobOptions(run_timeout_sec=10.0)


def program(flops: float, *shape: int) -> Program:
    return Program("p" * 64, "", Arguments((Tensor("TENSOR", "float32", shape),)), flops)


@pytest.mark.parametrize("best_us", [None, 1.0, 1e9])
@pytest.mark.parametrize("flops", [0.0, 1e6, 1e15])
def test_the_jobs_limit_is_never_exceeded(flops: float, best_us: float | None) -> None:
    assert 0 < run_timeout_sec(program(flops, 8), OPTIONS, best_us) <= 10.0


def test_a_known_best_shortens_the_wait_for_the_hopeless() -> None:
    options = JobOptions(run_timeout_sec=600.0)
    guessed, known = (run_timeout_sec(program(1e9, 8), options, best) for best in (None, 500.0))
    assert known < 0.3 * guessed


@pytest.mark.parametrize("best_us", [10.0, 1e3, 2e4])
def test_a_slow_but_not_hopeless_candidate_has_the_time_it_needs(best_us: float) -> None:
    options = JobOptions(run_timeout_sec=600.0)
    slow_sec = 0.9 * HOPELESS * best_us / 1e6
    timing_sec = max(0.1, options.evaluator.number * slow_sec)
    assert run_timeout_sec(program(1e6, 8), options, best_us) > OVERHEAD_SEC + timing_sec + 3 * slow_sec


def test_moving_data_is_work_too() -> None:
    options = JobOptions(run_timeout_sec=600.0)
    small, large = (run_timeout_sec(program(0.0, n), options, None) for n in (10, 10**9))
    assert large > 5 * small


def test_a_longer_timing_gets_a_longer_limit() -> None:
    longer = JobOptions(run_timeout_sec=600.0, evaluator=EvaluatorOptions(repeat=10, min_repeat_ms=1000))
    assert run_timeout_sec(program(1.0, 8), longer, 10.0) > 10.0 + OVERHEAD_SEC
