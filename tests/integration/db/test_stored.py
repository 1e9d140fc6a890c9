"""What must lie in the artifact store is listed from the rows, on both databases."""

from sqlalchemy import update

from db.database_clock import now
from db.repositories.cost_models import CostModels, NewCostModel
from db.repositories.jobs import Jobs
from db.repositories.stored_and_lost_files import StoredFiles
from db.repositories.uploaded_models import Models
from db.tables import Job
from tests.fixtures.rows import MODEL, Rows


def test_a_model_of_two_owners_is_one_file(rows: Rows) -> None:
    rows.write(lambda session: Models(session).add(MODEL, "bob", "mlp", 1))
    assert rows.read(lambda session: StoredFiles(session).models()) == [MODEL]


def test_exports_of_deleted_jobs_are_not_expected(rows: Rows) -> None:
    rows.write(lambda session: Jobs(session).record(rows.job_id, export_uri="/exports/it"))
    assert rows.read(lambda session: StoredFiles(session).exports()) == {rows.job_id: "/exports/it"}
    rows.write(lambda session: session.execute(update(Job).values(deleted_at=now())))
    assert rows.read(lambda session: StoredFiles(session).exports()) == {}


def test_active_cost_models_come_with_their_bytes(rows: Rows) -> None:
    for blob in (b"old", b"new"):
        new = NewCostModel("static", 1, "it", 0, 0, {}, blob)
        rows.write(lambda session, new=new: CostModels(session).add(new))
    (found,) = rows.read(lambda session: list(StoredFiles(session).cost_models()))
    assert (found.name.version, found.blob) == (2, b"new")
