"""What a round notes about how its model ordered its batch."""

import pytest

from mallorn.core.outcomes import Outcome
from mallorn.workers.round.run import FEWEST
from mallorn.workers.round.train_cost_model import train

SEARCHED = {"search": "evolutionary", "trials": 400}


def a_ranked_round(workshop, **options):
    """The first round of a job whose family has a model."""
    job = workshop.job(("w0",), **SEARCHED | options)
    train(workshop, job, workshop.closed_round(job).task_id)
    return workshop.closed_round(job)


def test_the_first_round_of_a_family_has_no_model_to_judge(workshop):
    job = workshop.job(("w0",), **SEARCHED)
    assert workshop.closed_round(job).stats.own_accuracy is None


def test_a_round_notes_the_share_of_pairs_that_its_own_model_had_in_order(workshop):
    done = a_ranked_round(workshop)
    rows = [row for row in workshop.rows(round_id=done.id) if row.outcome == Outcome.OK]
    pairs = [(one, two) for one in rows for two in rows if one.latency_us < two.latency_us * 0.999]
    right = sum(
        (one.predicted > two.predicted) + 0.5 * (one.predicted == two.predicted) for one, two in pairs
    )
    assert done.stats.own_accuracy == pytest.approx(right / len(pairs), abs=1e-3)


def test_a_few_valid_results_are_no_evidence(workshop):
    job = workshop.job(("w0",), **SEARCHED)
    train(workshop, job, workshop.closed_round(job).task_id)
    workshop.bench.outcomes = dict.fromkeys(range(FEWEST - 1, 64), Outcome.RUN_ERROR)
    assert workshop.closed_round(job).stats.own_accuracy is None


def test_equal_times_are_no_evidence(workshop):
    workshop.bench.times = lambda latency_us: 5.0
    assert a_ranked_round(workshop).stats.own_accuracy is None
