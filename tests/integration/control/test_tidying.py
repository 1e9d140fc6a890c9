"""What the settings let go of, and what they keep."""

import os
import time
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select, update

from mallorn.core.artifact_uris import batch_uri, export_uri, model_uri, parts_uri
from mallorn.core.settings import Settings
from mallorn.core.states import JobState
from mallorn.core.targets import parse_target
from mallorn.core.values.event import OtherEvent
from mallorn.db.repositories.access_control import Audit
from mallorn.db.repositories.archive_and_delete_jobs import Removals
from mallorn.db.repositories.job_events_and_warnings import Events
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.stored_files import Models
from mallorn.db.repositories.targets import Targets
from mallorn.db.tables import AuditRow, Event, Job, Measurement, MeasurementCount, Model
from mallorn.services.control import periodic_tasks
from mallorn.services.control.periodic_tasks import delete_expired_data
from tests.fixtures.database import BOTH
from tests.fixtures.rows import MODEL, Rows, new_job

LONG_AGO_SEC = 30 * 86400


class Kept:
    """A job that ended a month ago, its export, its log, and its model."""

    def __init__(self, rows: Rows, data: Path) -> None:
        self.rows, self.data = rows, data
        self.export = Path(export_uri(str(data / "artifacts"), rows.job_id, "target"))
        self.model = Path(model_uri(str(data / "artifacts"), MODEL))
        for file in (self.export / "log.json", self.model):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("{}")
        rows.write(self._end)

    def _end(self, session: Any) -> None:
        Jobs(session).store_report_columns(self.rows.job_id, export_uri=str(self.export))
        Jobs(session).move_to_state(self.rows.job_id, list(JobState), JobState.DONE)
        Events(session).append(self.rows.job_id, OtherEvent(kind="done", data={}))
        session.execute(update(Job).values(finished_at=Job.finished_at - LONG_AGO_SEC))
        session.execute(update(Model).values(created_at=Model.created_at - LONG_AGO_SEC))

    def tidy(self, **changes: Any) -> None:
        url = self.rows.database.url
        delete_expired_data(self.rows.database, Settings(data_dir=self.data, database_url=url, **changes))

    def jobs(self) -> int:
        return len(self.rows.read(lambda session: Jobs(session).list(None)).items)

    def count(self, table: type) -> int:
        return int(self.rows.read(lambda session: session.scalar(select(func.count()).select_from(table))))


@pytest.fixture
def kept(rows: Rows, tmp_path: Path) -> Kept:
    return Kept(rows, tmp_path)


def test_by_default_everything_is_kept(kept: Kept) -> None:
    kept.tidy()
    assert (kept.jobs(), kept.count(Event), kept.count(Model)) == (1, 1, 1)
    assert kept.export.exists()
    assert kept.model.exists()


def test_jobs_go_with_their_files_when_they_are_old_enough(kept: Kept) -> None:
    kept.tidy(keep_jobs_days=31)
    assert kept.jobs() == 1
    kept.tidy(keep_jobs_days=29)
    assert (kept.jobs(), kept.count(Event), kept.count(Model)) == (0, 0, 1)
    assert not kept.export.parent.exists()


def test_logs_may_go_before_their_jobs(kept: Kept) -> None:
    kept.tidy(keep_events_days=29)
    assert (kept.jobs(), kept.count(Event)) == (1, 0)
    assert kept.export.exists()


@BOTH
def test_a_model_goes_once_no_job_refers_to_it(kept: Kept) -> None:
    kept.tidy(keep_models_days=29)
    assert kept.model.exists()
    kept.tidy(keep_jobs_days=29)
    kept.tidy(keep_models_days=29)
    assert kept.count(Model) == 0
    assert not kept.model.exists()


@BOTH
def test_entries_of_the_audit_log_go_when_they_are_old_enough(kept: Kept) -> None:
    entry = {"owner": "ada", "key_id": "", "method": "PUT", "path": "/api/v1/models", "status": 200}
    kept.rows.write(lambda session: Audit(session).add(AuditRow(**entry)))
    kept.rows.write(lambda session: session.execute(update(AuditRow).values(at=1.0)))
    kept.tidy()
    assert kept.count(AuditRow) == 1
    kept.tidy(keep_audit_days=1)
    assert kept.count(AuditRow) == 0


@BOTH
def test_a_deleted_job_that_measured_nothing_leaves_neither_row_nor_target(
    rows: Rows, tmp_path: Path
) -> None:
    rows.measured_round(rows.ok(0))
    kept = Kept(rows, tmp_path)
    own = parse_target({"kind": "llvm", "num-cores": 77})

    def submitted(session: Any) -> str:
        target_id = Targets(session).ensure(own).id
        return Jobs(session).create(new_job(target_id=target_id))[0].id

    cheap, recent = (rows.write(submitted) for _ in range(2))
    for job_id in (cheap, recent):
        rows.write(lambda session, job_id=job_id: Jobs(session).cancel(job_id, "ada"))
    for job_id in (cheap, recent, rows.job_id):
        rows.write(lambda session, job_id=job_id: Removals(session).delete(job_id, "ada"))
    days_ago = update(Job).values(deleted_at=Job.deleted_at - 2 * 86400)
    rows.write(lambda session: session.execute(days_ago.where(Job.id.in_([cheap, rows.job_id]))))
    kept.tidy()
    jobs = rows.read(lambda session: set(session.scalars(select(Job.id))))
    assert jobs == {recent, rows.job_id}, "what was measured stays, and so does what was deleted just now"
    assert rows.read(lambda session: Targets(session).find(own.key)) is not None, "a job refers to it"
    rows.write(lambda session: session.execute(days_ago.where(Job.id == recent)))
    kept.tidy()
    assert rows.read(lambda session: Targets(session).find(own.key)) is None
    assert kept.count(Measurement) == 1
    assert rows.read(lambda session: Targets(session).texts([rows.target_id]))


@BOTH
def test_files_of_a_deleted_export_go_if_the_coordinator_died_before(kept: Kept) -> None:
    kept.rows.write(lambda session: Removals(session).delete_export(kept.rows.job_id, "ada"))
    kept.rows.write(
        lambda session: Jobs(session).move_to_state(kept.rows.job_id, list(JobState), JobState.TUNING)
    )
    kept.tidy()
    assert kept.export.exists(), "it may come to export anew"
    kept.rows.write(
        lambda session: Jobs(session).move_to_state(kept.rows.job_id, list(JobState), JobState.DONE)
    )
    kept.tidy()
    assert not kept.export.parent.exists()
    assert kept.jobs() == 1
    assert kept.rows.read(lambda session: Removals(session).list_leftover_exports(5)) == []


def test_only_so_many_go_at_a_time(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(periodic_tasks, "AT_A_TIME", 1)
    other = kept.rows.write(lambda session: kept.rows.add_job(session, "ada", ("w0",)))
    kept.rows.write(lambda session: Jobs(session).move_to_state(other, list(JobState), JobState.FAILED))
    kept.rows.write(lambda session: session.execute(update(Job).values(finished_at=1.0)))
    kept.tidy(keep_jobs_days=1)
    assert kept.jobs() == 1
    kept.tidy(keep_jobs_days=1)
    assert kept.jobs() == 0


def test_files_that_a_dead_process_left_behind_go_later(kept: Kept) -> None:
    kept.rows.write(lambda session: Removals(session).delete(kept.rows.job_id, "ada"))
    assert kept.export.exists()
    kept.tidy()
    assert not kept.export.exists()
    assert kept.rows.read(lambda session: Removals(session).list_leftover_exports(5)) == []


def batch_record(kept: Kept, job_id: str) -> Path:
    file = Path(batch_uri(str(kept.data / "artifacts"), job_id, "0123456789abcdef"))
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    return file


def test_what_is_known_of_a_batch_goes_long_after_the_end_of_its_job(kept: Kept) -> None:
    record, unknown = batch_record(kept, kept.rows.job_id), batch_record(kept, "job-of-another-database")
    kept.tidy()
    assert record.exists(), "the job ended a month ago, and may be resumed"
    kept.rows.write(lambda session: session.execute(update(Job).values(finished_at=1.0)))
    kept.tidy()
    assert not record.parent.exists()
    assert unknown.exists(), "the artifact store may serve another database, too"


def test_what_is_known_of_a_batch_goes_with_its_job(kept: Kept) -> None:
    record = batch_record(kept, kept.rows.job_id)
    kept.rows.write(lambda session: Removals(session).delete(kept.rows.job_id, "ada"))
    kept.tidy()
    assert not record.exists()


def test_batches_of_a_job_that_goes_on_stay_however_old_they_are(kept: Kept) -> None:
    record = batch_record(kept, kept.rows.job_id)
    kept.rows.write(lambda session: Jobs(session).resume(kept.rows.job_id, "ada", 8))
    kept.rows.write(lambda session: session.execute(update(Job).values(created_at=1.0)))
    kept.tidy()
    assert record.exists()


def test_a_job_that_goes_on_in_the_meantime_stays(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Removals.ended_before

    def then_resumed(removals: Removals, days: float, limit: int) -> Any:
        old = found(removals, days, limit)
        kept.rows.write(lambda session: Jobs(session).resume(kept.rows.job_id, "ada", 8))
        return old

    monkeypatch.setattr(Removals, "ended_before", then_resumed)
    kept.tidy(keep_jobs_days=1)
    assert kept.jobs() == 1
    assert kept.count(Measurement) == 0


def test_an_owners_models_are_their_own(kept: Kept) -> None:
    kept.rows.write(lambda session: Models(session).add(MODEL, "bob", "mlp", 10))
    kept.rows.write(lambda session: session.execute(update(Model).values(created_at=1.0)))
    kept.tidy(keep_models_days=1)
    assert kept.count(Model) == 1
    assert kept.model.exists()


def test_what_was_measured_long_ago_is_counted_for_statistics(rows: Rows, tmp_path: Path) -> None:
    rows.measured_round(rows.ok(0))
    rows.write(lambda session: session.execute(update(Measurement).values(created_at=0.0)))
    delete_expired_data(rows.database, Settings(data_dir=tmp_path))
    counted = select(func.sum(MeasurementCount.rows)).where(MeasurementCount.facet == "kind")
    assert rows.read(lambda session: session.scalar(counted)) == 1


def test_an_upload_that_nobody_goes_on_with_is_deleted_with_its_parts_after_a_day(kept: Kept) -> None:
    folders = [Path(parts_uri(str(kept.data / "artifacts"), owner, MODEL)) for owner in ("ada", "bob")]
    for folder in folders:
        folder.mkdir(parents=True)
        for part in ("0", "1"):
            (folder / part).write_bytes(b"part")
            long_ago = time.time() - 90_000
            os.utime(folder / part, (long_ago, long_ago))
    (folders[1] / "1").touch()
    kept.tidy()
    assert [folder.exists() for folder in folders] == [False, True]
    assert len(list(folders[1].iterdir())) == 2
