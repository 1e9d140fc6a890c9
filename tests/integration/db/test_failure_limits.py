"""A failure counts for whom it says something: those with the same builder, and no more time than it had."""

from dataclasses import replace

import pytest

from mallorn.core.outcomes import Outcome
from mallorn.db.repositories.measurement_filters import TrialLimits
from mallorn.db.repositories.trials import Trials

USUAL = TrialLimits("0.27.0", build_sec=30.0, run_sec=10.0)
HASTY = replace(USUAL, build_sec=0.05, run_sec=0.05)
OTHER = replace(USUAL, builder="0.28.0")
UNBUILT = (Outcome.BUILD_ERROR, Outcome.BUILD_TIMEOUT)


def failed(rows, slot, outcome, limits):
    """A failure as a round stores it: what was not built has no measuring context."""
    where = {"context_id": None} if outcome in UNBUILT else {}
    return replace(rows.failed(slot, outcome, **where), limits=limits)


def outcomes(rows, limits):
    """What a job with these limits is told of each trial."""
    same = rows.workloads["w0"], rows.target_id
    found = rows.read(lambda session: Trials(session).history(*same, None, rows.context_id, limits))
    return [trial.outcome for trial in found]


@pytest.mark.parametrize(
    ("outcome", "under", "told"),
    [
        (Outcome.BUILD_TIMEOUT, HASTY, {HASTY}),
        (Outcome.BUILD_TIMEOUT, USUAL, {HASTY, USUAL}),
        (Outcome.BUILD_TIMEOUT, OTHER, {OTHER}),
        (Outcome.BUILD_TIMEOUT, None, set()),
        (Outcome.BUILD_ERROR, HASTY, {HASTY, USUAL}),  # the compiler's own, whatever time it had
        (Outcome.BUILD_ERROR, OTHER, {OTHER}),
        (Outcome.BUILD_ERROR, None, set()),
        (Outcome.RUN_TIMEOUT, HASTY, {HASTY}),
        (Outcome.RUN_TIMEOUT, USUAL, {HASTY, USUAL, OTHER}),  # contexts tell builders apart
        (Outcome.RUN_TIMEOUT, None, {HASTY, USUAL, OTHER}),
        (Outcome.RUN_ERROR, HASTY, {HASTY, USUAL, OTHER}),
        (Outcome.WORKER_LOST, None, {HASTY, USUAL, OTHER}),
    ],
)
def test_a_failure_is_told_to_those_whom_it_says_something(rows, outcome, under, told):
    rows.closed_round(failed(rows, 0, outcome, under), rows.ok(1))
    for limits in (HASTY, USUAL, OTHER):
        assert outcomes(rows, limits) == [outcome if limits in told else Outcome.WITHDRAWN, Outcome.OK]


def test_first_guesses_that_failed_under_other_limits_count_as_untried(rows):
    hasty = [failed(rows, slot, Outcome.BUILD_TIMEOUT, HASTY) for slot in range(3)]
    rows.closed_round(*hasty, *(rows.ok(slot, 10.0 + slot) for slot in (3, 4)))

    def first(limits):
        same = rows.workloads["w0"], rows.target_id, rows.context_id, "random", 3
        found = rows.read(lambda session: Trials(session).list_fastest_of_first(*same, limits))
        return [trial.candidate.decisions[0] for trial in found]

    assert first(HASTY) == []
    assert first(USUAL) == [3, 4]


def test_shared_cost_models_learn_from_no_time_out_under_a_limit_below_the_default(rows):
    hasty = [
        failed(rows, 0, Outcome.BUILD_TIMEOUT, HASTY),
        failed(rows, 1, Outcome.RUN_TIMEOUT, HASTY),
    ]
    usual = [
        failed(rows, 2, Outcome.BUILD_TIMEOUT, USUAL),
        failed(rows, 3, Outcome.RUN_TIMEOUT, USUAL),
        failed(rows, 4, Outcome.BUILD_ERROR, HASTY),
        failed(rows, 5, Outcome.BUILD_TIMEOUT, None),
    ]
    rows.closed_round(*hasty, *usual)
    seen, _ = rows.read(lambda session: Trials(session).read_family_columns("matmul", rows.target_id, 999))
    assert len(seen) == len(usual)
    assert rows.read(
        lambda session: Trials(session).count_new_family_rows("matmul", rows.target_id, 999)
    ) == len(usual)
