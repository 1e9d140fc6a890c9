"""What failed under one user's time limits is tried for others, whose limits are their own."""

from mallorn.core.outcomes import Outcome
from mallorn.searchers.base import DEFAULT, proposal_method_of

HASTY = {"build_timeout_sec": 0.05}


def guesses(workshop, job_id):
    """The first guesses that a job's first round tried."""
    found = workshop.closed_round(job_id)
    rows = workshop.rows(round_id=found.id)
    return {bytes(row.decisions) for row in rows if proposal_method_of(row.origin) == DEFAULT}


def test_first_guesses_that_were_too_slow_for_one_job_are_tried_for_the_next(workshop):
    workshop.bench.outcomes = dict.fromkeys(range(64), Outcome.BUILD_TIMEOUT)
    hasty = guesses(workshop, workshop.job(("w0",), **HASTY))
    stored = workshop.rows(outcome=Outcome.BUILD_TIMEOUT)
    assert hasty
    assert {(row.limit_sec, row.context_id) for row in stored} == {(0.05, None)}
    assert {row.built_by for row in stored} == {"made-up"}
    assert not guesses(workshop, workshop.job(("w0",), **HASTY))  # whoever has no more time learns of it
    workshop.bench.outcomes = {}
    assert guesses(workshop, workshop.job(("w0",))) == hasty
