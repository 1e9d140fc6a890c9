"""What two recordings of the same candidates say of noise."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.repeats import headline, repeated
from mallorn.core.errors import InvalidRequest
from mallorn.core.outcomes import Outcome
from mallorn.core.values.trial import Trial
from mallorn.research.pretraining.training_data import TaskData
from mallorn.searchers.space import Candidate

TIMES = np.linspace(10.0, 20.0, 12)


def task(times: "np.ndarray[tuple[int], np.dtype[np.float64]]", workload: str = "w") -> TaskData:
    trials = [Trial(Candidate("s", (at,)), Outcome.OK, float(us)) for at, us in enumerate(times)]
    return TaskData(workload, "matmul", "{}", "here", (), {}, trials)


def test_the_same_times_are_in_the_same_order_even_on_a_machine_that_is_slower() -> None:
    (found,) = repeated([task(TIMES)], [task(3 * TIMES)])
    assert (found.candidates, found.pairs, found.pairs_apart) == (12, 1.0, 1.0)
    assert found.deviation == pytest.approx(0.0, abs=1e-9)


def test_noise_that_turns_neighbours_round_is_seen_in_pairs_and_in_the_deviation() -> None:
    swapped = TIMES.reshape(-1, 2)[:, ::-1].ravel()
    (found,) = repeated([task(TIMES)], [task(swapped)])
    assert found.pairs == pytest.approx(1 - 6 / 66)
    assert found.deviation > 0.03
    assert "mean of 1 tasks: 0.909" in headline([found])


def test_what_failed_or_was_measured_once_says_nothing() -> None:
    failed = replace(
        task(TIMES), trials=[replace(each, outcome=Outcome.WRONG_RESULT) for each in task(TIMES).trials]
    )
    for other in ([failed], [task(TIMES, workload="another")], [task(TIMES[:7])]):
        with pytest.raises(InvalidRequest, match="8 candidates in both"):
            repeated([task(TIMES)], other)
