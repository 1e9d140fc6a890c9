"""Archived jobs are out of the list; deleted ones are out of sight, and what they measured is not."""

import pytest
from sqlalchemy import func, select, update

from mallorn.core.errors import Conflict, NotFound
from mallorn.core.states import JobState, RoundState, StageKind
from mallorn.core.values.decision_log import RoundStats
from mallorn.core.values.event import FinishingEvent
from mallorn.db.repositories.archive_and_delete_jobs import Removals
from mallorn.db.repositories.dataset_statistics import Statistics
from mallorn.db.repositories.job_events_and_warnings import Events
from mallorn.db.repositories.jobs import JobFilter, Jobs
from mallorn.db.repositories.measurements import Records
from mallorn.db.repositories.rounds import Rounds
from mallorn.db.repositories.stored_files import Models
from mallorn.db.repositories.tasks import TaskHistories
from mallorn.db.repositories.workers import Activity, StageRuns
from mallorn.db.repositories.workloads import Networks
from mallorn.db.tables import Event, Job, Measurement, StageRun
from tests.fixtures.rows import MODEL, Rows, new_job

WORDS = ("name", "ended_because", "graph", "report", "warnings", "idempotency_key")


def worked(rows: Rows) -> None:
    """The job has measured, logged, and come to its end."""
    _, hold = rows.measured_round(rows.ok(0), rows.failed(1))
    rows.write(lambda session: Rounds(session).close(hold, RoundState.DONE, RoundStats(candidates=1)))
    rows.write(lambda session: Events(session).append(rows.job_id, FinishingEvent(reason="enough")))
    rows.write(lambda session: StageRuns(session).begin(rows.job_id, StageKind.FINISH, "w"))
    rows.write(
        lambda session: Jobs(session).store_report_columns(
            rows.job_id, report={"schedule_count": 1}, warnings=[{"message": "m"}], export_uri="x/y"
        )
    )
    end(rows, rows.job_id)


def end(rows: Rows, job_id: str, state: JobState = JobState.DONE) -> None:
    rows.write(lambda session: Jobs(session).move_to_state(job_id, list(JobState), state, "why"))


def ended_days_ago(rows: Rows, job_id: str, days: float) -> None:
    earlier = update(Job).where(Job.id == job_id).values(finished_at=Job.finished_at - days * 86400)
    rows.write(lambda session: session.execute(earlier))


def remove(rows: Rows, job_id: str = "") -> None:
    rows.write(lambda session: Removals(session).delete(job_id or rows.job_id, "ada"))


def listed(rows: Rows, owner: str | None = "ada", archived: bool = False) -> list[str]:
    return rows.read(
        lambda session: [job.id for job in Jobs(session).list(owner, JobFilter(archived=archived)).items]
    )


def count(rows: Rows, table: type) -> int:
    return int(rows.read(lambda session: session.scalar(select(func.count()).select_from(table))))


def test_an_archived_job_is_out_of_the_list_and_whole(rows):
    end(rows, rows.job_id)
    rows.write(lambda session: Removals(session).archive(rows.job_id, "ada"))
    assert (listed(rows), listed(rows, archived=True)) == ([], [rows.job_id])
    assert rows.read(lambda session: Jobs(session).get(rows.job_id, "ada").name) == "mlp"
    rows.write(lambda session: Removals(session).unarchive(rows.job_id, "ada"))
    assert (listed(rows), listed(rows, archived=True)) == ([rows.job_id], [])


def test_a_resumed_job_is_in_the_list_again(rows):
    end(rows, rows.job_id)
    rows.write(lambda session: Removals(session).archive(rows.job_id, "ada"))
    rows.write(lambda session: Jobs(session).resume(rows.job_id, "ada", 8))
    assert listed(rows) == [rows.job_id]


def test_a_deleted_job_is_in_no_list_and_not_found(rows):
    worked(rows)
    remove(rows)
    assert listed(rows) == listed(rows, None) == listed(rows, archived=True) == []
    for act in (Jobs.get, Jobs.pause, Jobs.cancel, Removals.archive, Removals.unarchive, Removals.delete):
        with pytest.raises(NotFound):
            rows.write(lambda session, act=act: act(Removals(session), rows.job_id, "ada"))


def test_a_deletion_takes_the_words_and_the_logs(rows):
    worked(rows)
    remove(rows)
    stone = rows.read(lambda session: Jobs(session).get(rows.job_id, None))
    assert [getattr(stone, word) for word in WORDS] == ["", "", None, None, [], None]
    assert (count(rows, Event), count(rows, StageRun)) == (0, 0)
    assert rows.read(lambda session: Activity(session).rounds("ada", 3600, 10)) == []


def test_what_a_deleted_job_measured_stays_its_owners(rows):
    worked(rows)
    before = rows.read(lambda session: Statistics(session).of("ada"))
    weights = rows.read(lambda session: Networks(session).call_counts_by_network())
    remove(rows)
    assert count(rows, Measurement) == 2
    found = rows.read(lambda session: Records(session).page("ada", job_id=rows.job_id))
    assert len(found.items) == 2
    assert rows.read(lambda session: Statistics(session).of("ada")) == before
    assert rows.read(lambda session: Networks(session).call_counts_by_network()) == weights


def test_rounds_of_a_deleted_job_go_on_telling_the_planner_what_they_brought(rows):
    other = rows.write(lambda session: rows.add_job(session, "ada", ("w0", "w1")))
    for job_id in (rows.job_id, other):
        rows.write(lambda session, job_id=job_id: Jobs(session).bind_context(job_id, rows.context_id))
    worked(rows)

    def standing():
        return rows.read(lambda session: TaskHistories(session).of(Jobs(session).get(other, None)))

    before = standing()
    assert [found.best_us for found in before[0].curve.points] == [10.0]
    remove(rows)
    assert standing() == before


@pytest.mark.parametrize("state", [state for state in JobState if not state.is_final])
def test_a_job_that_goes_on_is_neither_archived_nor_deleted(rows, state):
    end(rows, rows.job_id, state)
    for act in (Removals.archive, Removals.delete):
        with pytest.raises(Conflict, match=state) as caught:
            rows.write(lambda session, act=act: act(Removals(session), rows.job_id, "ada"))
        assert caught.value.hint == f"mallorn jobs cancel {rows.job_id}"
    assert listed(rows) == [rows.job_id]


def test_another_owners_job_is_not_found(rows):
    worked(rows)
    for act in (Removals.archive, Removals.unarchive, Removals.delete):
        with pytest.raises(NotFound):
            rows.write(lambda session, act=act: act(Removals(session), rows.job_id, "bob"))


def test_a_key_of_a_deleted_job_makes_a_new_one(rows):
    asked = new_job(idempotency_key="k", request_hash="h")
    first = rows.write(lambda session: Jobs(session).create(asked)[0].id)
    end(rows, first)
    remove(rows, first)
    again, is_new = rows.write(lambda session: Jobs(session).create(asked))
    assert is_new
    assert again.id != first


def test_a_model_goes_when_no_job_of_its_owner_refers_to_it(rows):
    end(rows, rows.job_id)
    with pytest.raises(Conflict, match=rows.job_id) as caught:
        rows.write(lambda session: Models(session).delete(MODEL, "ada"))
    assert caught.value.hint == f"mallorn jobs rm {rows.job_id}"
    remove(rows)
    assert rows.write(lambda session: Models(session).delete(MODEL, "ada"))
    with pytest.raises(NotFound):
        rows.read(lambda session: Models(session).get(MODEL, None))


def test_the_bytes_of_a_model_are_kept_for_another_owner(rows):
    rows.write(lambda session: Models(session).add(MODEL, "bob", "mlp", 10))
    assert not rows.write(lambda session: Models(session).delete(MODEL, "bob"))
    assert rows.read(lambda session: Models(session).get(MODEL, "ada").owner) == "ada"


def test_only_what_ended_long_ago_is_old(rows):
    worked(rows)
    running = rows.write(lambda session: rows.add_job(session, "ada", ("w0",)))
    fresh = rows.write(lambda session: rows.add_job(session, "ada", ("w0",)))
    end(rows, fresh)
    ended_days_ago(rows, rows.job_id, 10)
    assert rows.read(lambda session: Removals(session).ended_before(9, 5)) == [rows.job_id]
    assert rows.read(lambda session: Removals(session).ended_before(11, 5)) == []
    assert rows.write(lambda session: Removals(session).forget_logs(9, 5)) == [rows.job_id]
    assert rows.write(lambda session: Removals(session).forget_logs(9, 5)) == []
    assert {running, fresh} < set(listed(rows))
