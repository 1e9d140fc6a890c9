"""What must lie in the artifact store, and what becomes of rows whose files are gone, on both databases."""

import pytest
from sqlalchemy import update

from mallorn.db.database_clock import now
from mallorn.db.repositories.cost_models import CostModels, NewCostModel
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.stored_files import LOST_EXPORT, LOST_MODEL, Models, Repairs, StoredFiles
from mallorn.db.tables import Job
from tests.fixtures.rows import MODEL, Rows


def test_a_model_of_two_owners_is_one_file(rows: Rows) -> None:
    rows.write(lambda session: Models(session).add(MODEL, "bob", "mlp", 1))
    assert rows.read(lambda session: StoredFiles(session).models()) == [MODEL]


def test_exports_of_deleted_jobs_are_not_expected(rows: Rows) -> None:
    rows.write(lambda session: Jobs(session).store_report_columns(rows.job_id, export_uri="/exports/it"))
    assert rows.read(lambda session: StoredFiles(session).exports()) == {rows.job_id: "/exports/it"}
    rows.write(lambda session: session.execute(update(Job).values(deleted_at=now())))
    assert rows.read(lambda session: StoredFiles(session).exports()) == {}


def test_active_cost_models_come_with_their_bytes(rows: Rows) -> None:
    for blob in (b"old", b"new"):
        new = NewCostModel("static", 1, "it", 0, 0, {}, blob)
        rows.write(lambda session, new=new: CostModels(session).add(new))
    (found,) = rows.read(lambda session: list(StoredFiles(session).cost_models()))
    assert (found.name.version, found.blob) == (2, b"new")


def warned(rows: Rows) -> list[str]:
    job = rows.read(lambda session: Jobs(session).get(rows.job_id, None))
    return [warning.source for warning in job.warnings]


def test_the_jobs_of_a_lost_model_are_told_and_rows_without_a_job_go(rows: Rows) -> None:
    rows.write(lambda session: Models(session).add(MODEL, "bob", "of nobody's job", 1))
    assert rows.read(lambda session: Repairs(session).lost_models()) == set()
    assert rows.write(lambda session: Repairs(session).record_lost_model(MODEL)) == [rows.job_id]
    assert warned(rows) == [LOST_MODEL.source]
    assert rows.read(lambda session: Repairs(session).lost_models()) == {MODEL}
    left = rows.read(lambda session: Models(session).list(None)).items
    assert [model.owner for model in left] == ["ada"]


def test_a_lost_export_is_expected_no_more(rows: Rows) -> None:
    rows.write(lambda session: Jobs(session).store_report_columns(rows.job_id, export_uri="/exports/it"))
    rows.write(lambda session: Repairs(session).record_lost_export(rows.job_id))
    assert rows.read(lambda session: StoredFiles(session).exports()) == {}
    assert warned(rows) == [LOST_EXPORT.source]


@pytest.mark.parametrize("instead", [None, 1])
def test_a_retired_version_gives_way_to_an_earlier_one_or_to_none(instead: int | None, rows: Rows) -> None:
    for name, blob in (("it", b"1"), ("it", b"2"), ("another", b"x"), ("it", b"3")):
        new = NewCostModel("static", rows.target_id, name, 0, 0, {}, blob)
        rows.write(lambda session, new=new: CostModels(session).add(new))
    newest = rows.read(lambda session: CostModels(session).latest("static", rows.target_id, "it"))
    assert newest is not None
    earlier = rows.read(lambda session: list(StoredFiles(session).cost_models_before(newest.id)))
    assert [each.blob for each in earlier] == [b"2", b"1"]
    chosen = None if instead is None else earlier[instead].id
    rows.write(lambda session: Repairs(session).replace_active_version(newest.id, chosen))
    active = rows.read(lambda session: [each.blob for each in StoredFiles(session).cost_models()])
    assert sorted(active) == sorted([b"x"] + ([b"1"] if instead else []))
