"""What is told of schedules that were chosen without measuring: what each rests on, and who checked it."""

from typing import Any

from mallorn.core.values.finish_report import FinishReport, Source
from mallorn.wording.describe_results import ANSWER_COLUMNS, RESTS_ON, describe_schedule_sources


def report(checked: int = 0, **expected_us: float) -> FinishReport:
    """Three tasks: one answered by its own measurements, two by a base; the first so many are checked."""
    answers: dict[str, Any] = {
        "dense": {"source": "same", "basis": "the fastest that was measured here", "confidence": "measured"},
        "conv": {"source": "learned", "basis": "what a base likes best", "confidence": "likely"},
        "pool": {"source": "learned", "basis": "what a base likes best", "confidence": "likely"},
    }
    for at, (name, answer) in enumerate(answers.items()):
        answer |= {"is_verified": at < checked, "expected_us": expected_us.get(name)}
    return FinishReport.model_validate(
        {"unmeasured_schedules": answers, "schedule_count": 3, "workload_count": 4}
    )


def test_each_task_has_a_row_with_its_source_and_how_sure_it_is() -> None:
    answers = report(1, dense=120.0).unmeasured_schedules.items()
    rows = [[column.of(row) for column in ANSWER_COLUMNS] for row in answers]
    assert rows[0] == ["dense", "same", "measured", "120.0 us", "yes", "the fastest that was measured here"]
    assert rows[1] == ["conv", "learned", "likely", "", "no", "what a base likes best"]
    assert len(rows) == 3


def test_sources_are_counted_in_the_order_in_which_they_are_asked() -> None:
    assert describe_schedule_sources(report())[0].endswith(
        "1 on measurements of the same workload, 2 on what a base has learned"
    )
    assert describe_schedule_sources(report())[0].startswith("3 of 4 tasks")


def test_the_check_is_told_as_far_as_it_went() -> None:
    said = [describe_schedule_sources(report(checked))[1] for checked in (0, 2, 3)]
    assert said == ["built and checked: no", "built and checked: 2 of them", "built and checked: yes"]


def test_every_source_has_words() -> None:
    assert set(RESTS_ON) == set(Source)


def test_nothing_is_told_of_a_job_that_searched() -> None:
    assert describe_schedule_sources(FinishReport()) == []
