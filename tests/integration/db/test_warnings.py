"""Warnings of a job: equal ones are counted, and those who follow the job hear of each once."""

from mallorn.db.repositories.job_events_and_warnings import MOST_KEPT, Events, NewJobWarning, Warnings
from mallorn.db.repositories.jobs import Jobs


def test_equal_warnings_are_one_that_counts(rows):
    for message in ("it raised", "it raised", "it is slow"):
        rows.write(
            lambda session, message=message: Warnings(session).add(
                rows.job_id, NewJobWarning("m", message, "h")
            )
        )
    kept = rows.write(lambda session: Jobs(session).get(rows.job_id, None).warnings)
    assert [(each.message, each.count) for each in kept] == [("it raised", 2), ("it is slow", 1)]
    events = rows.write(lambda session: Events(session).after(rows.job_id, 0))
    assert [event.payload["message"] for event in events if event.kind == "warning"] == [
        "it raised",
        "it is slow",
    ]


def test_a_flood_of_different_ones_is_cut_off(rows):
    for number in range(MOST_KEPT + 5):
        rows.write(
            lambda session, number=number: Warnings(session).add(
                rows.job_id, NewJobWarning("m", f"no. {number}")
            )
        )
    assert len(rows.write(lambda session: Jobs(session).get(rows.job_id, None).warnings)) == MOST_KEPT
