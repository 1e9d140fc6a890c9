"""What a progress bar asks must not slow down as the dataset grows: each answer comes from an index."""

import pytest
from sqlalchemy import event, text

from mallorn.db.repositories.fair_shares import FairShares
from mallorn.db.repositories.job_progress import progress
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.measurements import Records
from mallorn.db.repositories.rounds import Rounds, select_newest_measurement
from mallorn.db.repositories.schedules import Schedules
from mallorn.db.repositories.snapshots import Selection, SnapshotRows
from mallorn.db.repositories.tasks import TaskHistories, Tasks
from mallorn.db.repositories.trials import Trials
from mallorn.db.repositories.workloads import Workloads
from mallorn.db.session import Database
from tests.fixtures.rows import Rows, new_workload


@pytest.fixture
def sqlite_rows(sqlite_url):
    database = Database(sqlite_url)
    yield Rows(database)
    database.dispose()


def plans_of(rows, read):
    """SQLite's plan of every statement that `read` runs."""
    statements = []

    def remember(_connection, _cursor, statement, parameters, *_rest):
        statements.append((statement, parameters))

    event.listen(rows.database.engine, "before_cursor_execute", remember)
    rows.read(read)
    event.remove(rows.database.engine, "before_cursor_execute", remember)
    with rows.database.session() as session:
        connection = session.connection()
        queries = [pair for pair in statements if pair[0].startswith("SELECT")]
        explained = [connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", args) for sql, args in queries]
        return [row.detail for result in explained for row in result]


READS = {
    "progress": lambda rows: lambda session: progress(session, Jobs(session).get(rows.job_id, None)),
    "summaries": lambda rows: lambda session: Tasks(session).summaries(rows.job_id),
    "standings": lambda rows: lambda session: TaskHistories(session).of(Jobs(session).get(rows.job_id, None)),
    "claims": lambda rows: lambda session: FairShares(session).claims(rows.target_id),
    "due": lambda rows: lambda session: FairShares(session).list_jobs_to_plan(4),
    "history": lambda rows: lambda session: Trials(session).history(rows.workloads["w0"], rows.target_id, 9),
    "family": lambda rows: lambda session: Trials(session).read_family_columns("matmul", rows.target_id, 9),
    "best": lambda rows: lambda session: Trials(session).best(rows.workloads["w0"], rows.target_id, 4),
    "a page of the dataset": lambda rows: (
        lambda session: SnapshotRows(session).page(Selection(op="matmul"), 0, 9)
    ),
    "schedules": lambda rows: lambda session: Schedules(session).page("ada", workload="w0"),
    "done slots": lambda rows: lambda session: Rounds(session).done_slots(1),
    "a job's records": lambda rows: lambda session: Records(session).page("ada", job_id=rows.job_id),
}


@pytest.mark.parametrize("name", READS)
def test_no_query_walks_all_measurements(sqlite_rows, name):
    plans = plans_of(sqlite_rows, READS[name](sqlite_rows))
    walks = [step for step in plans if step.startswith("SCAN") and "measurements" in step]
    assert plans, "the read ran no query"
    assert walks == []


#: More workloads than Postgres keeps the commonest of: of any other it expects as many rows as of these.
MANY = 300
FILL = f"""
insert into measurements
    (slot, kind, workload_id, target_id, sketch_id, decisions, outcome, latency_us, origin)
select 0, 'trial', :first + n % {MANY}, :target, :sketch, '', 'ok', n, 'random'
    from generate_series(1, 40000) n
"""


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
def test_on_postgres_a_new_workload_costs_no_walk_from_the_newest_measurement_on(database_url):
    database = Database(database_url)
    names = tuple(f"w{at}" for at in range(MANY))
    rows = Rows(database, names)
    told = {"first": rows.workloads["w0"], "target": rows.target_id, "sketch": rows.sketch_id}
    assert sorted(rows.workloads.values()) == list(range(told["first"], told["first"] + MANY))
    rows.write(lambda session: session.execute(text(FILL), told))
    rows.write(lambda session: session.execute(text("analyze measurements")))
    (new,) = rows.write(lambda session: Workloads(session).ensure_many([new_workload("new")])).values()
    query = select_newest_measurement(new, rows.target_id).compile(
        database.engine, compile_kwargs={"literal_binds": True}
    )
    plan = rows.read(lambda session: session.scalars(text(f"explain {query}")).all())
    database.dispose()
    assert any("ix_measurements_workload" in step for step in plan), plan
    assert not any("pk_measurements" in step for step in plan), plan


def test_outcomes_are_counted_without_touching_the_rows(sqlite_rows):
    plans = plans_of(sqlite_rows, READS["progress"](sqlite_rows))
    assert any("COVERING INDEX ix_measurements_outcome" in step for step in plans)
