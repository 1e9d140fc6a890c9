"""Words that a newer version stored are read by this one as what they can be to it."""

import inspect

import pytest

from mallorn.core.outcomes import Outcome
from mallorn.core.states import Cause
from mallorn.core.targets import NATIVE
from mallorn.services.control import celery_tasks as control
from mallorn.workers import celery_tasks as worker


def test_an_outcome_of_a_newer_version_tells_nothing_of_its_candidate() -> None:
    assert Outcome.read("of_tomorrow") is Outcome.WORKER_LOST
    assert [Outcome.read(each.value) for each in Outcome] == list(Outcome)
    with pytest.raises(ValueError, match="of_tomorrow"):  # what a request says is refused as ever
        Outcome("of_tomorrow")


def test_a_cause_of_a_newer_version_is_what_its_words_say() -> None:
    assert Cause("of tomorrow") is Cause.OTHER


@pytest.mark.parametrize(
    ("task", "given"),
    [
        (control.plan_target_of_job, ("job",)),
        (worker.do_work, (NATIVE,)),
        (worker.train_cost_model, ("job", 3)),
    ],
)
def test_what_a_newer_version_says_besides_in_a_message_is_passed_over(
    task: object, given: tuple[object, ...]
) -> None:
    inspect.signature(task.run).bind(*given, "of tomorrow", {"more": 1})  # type: ignore[attr-defined]
