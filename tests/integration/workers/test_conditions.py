"""A report says how quiet the hosts were: while candidates were timed, and the whole model."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mallorn.core.outcomes import Outcome
from mallorn.core.states import RoundState
from mallorn.core.values.candidate import Candidate
from mallorn.core.values.decision_log import RoundStats
from mallorn.core.values.disturbance import Disturbance
from mallorn.core.values.finish_report import Conditions, FinishReport
from mallorn.core.values.trial import Trial
from mallorn.db.repositories.rounds import Rounds
from mallorn.workers.finish.run import summarize_timing_conditions

NOTHING = FinishReport()
WON = Candidate("s", ())
QUIET = Disturbance(candidates=8, valid_sec=0.8, cores=2)
BUSY = Disturbance(candidates=8, upper_bounds=2, valid_sec=0.4, repeated_sec=0.8, other_programs=2.0, cores=2)
MODEL = FinishReport(conditions=Conditions(steady=False, note="While the whole model was timed, it rained."))


@pytest.fixture
def told(rows: Any) -> Any:
    """What a finish says of a job with rounds of these disturbances."""

    def ask(
        *parts: Disturbance | None, report: FinishReport = NOTHING, winners: Sequence[float] = ()
    ) -> FinishReport:
        for part in parts:
            _, hold = rows.claimed_round()
            stats = RoundStats(candidates=8, disturbance=part)
            rows.write(lambda session: Rounds(session).close(hold, RoundState.DONE, stats))  # noqa: B023
        stage = SimpleNamespace(
            runtime=SimpleNamespace(database=rows.database), job=SimpleNamespace(id=rows.job_id)
        )
        found = [SimpleNamespace(trial=Trial(WON, Outcome.OK, disturbed=share)) for share in winners]
        return FinishReport(
            conditions=summarize_timing_conditions(cast("Any", stage), report.conditions, cast("Any", found))
        )

    return ask


def test_quiet_trials_are_steady_and_nothing_is_said(told: Any) -> None:
    report = told(QUIET, QUIET)
    assert report.is_undisturbed
    assert report.disturbance_text == ""
    assert report.conditions.trials.candidates == 16


def test_bounds_among_the_trials_are_said_and_the_job_is_not_steady(told: Any) -> None:
    report = told(QUIET, BUSY)
    assert not report.is_undisturbed
    assert "While candidates were timed, other programs used" in report.disturbance_text
    assert "14 of 16 times were certain, the others upper bounds" in report.disturbance_text


def test_winners_that_were_never_timed_undisturbed_are_said(told: Any) -> None:
    report = told(QUIET, winners=[0.0, 0.4])
    assert not report.is_undisturbed
    assert report.disturbance_text == "The times of 1 of 2 winners were only upper bounds."
    assert told(QUIET, winners=[0.0, 0.0]).is_undisturbed


def test_gaps_that_sufficed_are_said_and_the_job_is_steady(told: Any) -> None:
    report = told(BUSY.model_copy(update={"upper_bounds": 0}))
    assert report.is_undisturbed
    assert "timing took 3.0 times as long" in report.disturbance_text


def test_what_disturbed_the_whole_model_stays_said(told: Any) -> None:
    report = told(QUIET, report=MODEL)
    assert not report.is_undisturbed
    assert report.disturbance_text == MODEL.disturbance_text
    assert told(report=MODEL).disturbance_text == MODEL.disturbance_text


def test_rounds_of_before_and_jobs_that_timed_nothing_have_no_conditions(told: Any) -> None:
    assert told(None).conditions is None
