"""An upgrade deletes times that earlier versions stored without having taken them, with their schedules."""

import logging
from importlib import import_module

import pytest
from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from sqlalchemy import func, select, update

from mallorn.core.values.finish_report import FinishReport
from mallorn.db.measurement_codec import pack_times
from mallorn.db.repositories.dataset_statistics import Counts
from mallorn.db.repositories.schedules import Schedules
from mallorn.db.tables import Job, Measurement, Schedule
from tests.fixtures.schedules import promote

MIGRATION = import_module("mallorn.db.migrations.versions.0_2_0_15_delete_untimed_measurements")
NAMES = import_module("mallorn.db.migrations.versions.0_2_0_23_names_of_0_1_0")


def migrate(rows):
    with rows.database.transaction() as session:
        context = MigrationContext.configure(session.connection())
        with Operations.context(context):
            MIGRATION.upgrade()
            NAMES.rename()


def finished(rows, workload, origin, run_us, kind="finish"):
    """A schedule whose measurement has this origin and these times."""
    schedule = promote(rows, workload, run_us[0])
    values = {"origin": origin, "kind": kind, "run_us": pack_times(run_us), "latency_us": run_us[0]}

    def change(session):
        found = session.get_one(Schedule, schedule)
        session.execute(update(Measurement).where(Measurement.id == found.measurement_id).values(**values))
        return found.measurement_id

    return rows.write(change)


def counted(session):
    """Rows by facet and name, as statistics tell them."""
    found = Counts(session).select_counts(None)
    query = select(found.c.facet, found.c.name, func.sum(found.c.rows)).group_by(found.c.facet, found.c.name)
    return {(facet, name): count for facet, name, count in session.execute(query) if count}


@pytest.mark.parametrize("settled", [True, False], ids=["counted before", "not counted yet"])
def test_times_of_a_tenth_of_a_microsecond_inside_a_model_go_with_their_schedules(rows, caplog, settled):
    untimed = finished(rows, "w0", "inside:default", (0.1,))
    kept = [
        finished(rows, "w1", "inside:default", (80.0,)),
        finished(rows, "w1", "inside:default", (0.1, 0.1)),
        finished(rows, "w1", "finish", (0.1,)),
        finished(rows, "w1", "inside:default", (0.1,), kind="trial"),
    ]
    imported = finished(rows, "w0", "inside:mutation", (0.1,), kind="foreign_finish")
    report = FinishReport(tasks_us={"w0": 0.1, "w1": 80.0}, schedule_count=2)
    rows.write(lambda session: session.execute(update(Job).values(report=report)))
    if settled:
        rows.write(lambda session: Counts(session).count_new_rows(settled_sec=-60.0))
    with caplog.at_level(logging.WARNING):
        migrate(rows)
    left = rows.read(lambda session: session.scalars(select(Measurement.id).order_by(Measurement.id)).all())
    assert left == sorted(kept)
    assert not {untimed, imported} & set(left)
    owners = rows.read(lambda session: session.scalars(select(Schedule.measurement_id)).all())
    assert sorted(owners) == sorted(kept)
    told = rows.read(counted)
    workload = str(rows.workloads["w1"])
    assert {name: count for (facet, name), count in told.items() if facet == "workload"} == {workload: 4}
    assert {name: count for (facet, name), count in told.items() if facet == "kind"} == {
        "finish": 3,
        "trial": 1,
    }
    if settled:
        rows.write(lambda session: Counts(session).count_new_rows(settled_sec=-60.0))
        assert rows.read(counted) == told
    changed = rows.read(lambda session: session.scalars(select(Job.report)).one())
    assert (changed.tasks_us, changed.untimed_tasks, changed.schedule_count) == ({"w1": 80.0}, ["w0"], 2)
    assert "deleted 2 times that were not measured, and 2 schedules with them" in caplog.text


def test_a_database_without_such_times_is_left_as_it_is_and_nothing_is_said(rows, caplog):
    finished(rows, "w0", "inside:default", (80.0,))
    with caplog.at_level(logging.WARNING):
        migrate(rows)
    assert len(rows.read(lambda session: Schedules(session).page(None).items)) == 1
    assert "were not measured" not in caplog.text
