"""No statement of a route or a loop reads all of a large table: on Postgres each is answered from an index.

Walks are made dear, so that a few thousand rows are planned as millions are; an index without a condition
is a walk as well.
"""

import pytest
from sqlalchemy import text

from benchmarks.filled.plans import LARGE, listening, plan
from benchmarks.filled.reads import Met, reads, writes
from benchmarks.filled.rows import fill
from mallorn.db.migrate import upgrade
from mallorn.db.repositories.dataset_statistics import Counts
from mallorn.db.session import Database

pytestmark = pytest.mark.postgres
ROWS = 20_000
# Of commands that somebody types: they share, record or export what the dataset knows.
COMMANDS = {"best records", "recordings: measured", "export: a page"}
# Newest first until a page is full.
PAGES = {
    "records of an owner",
    "records of an owner on a workload",
    "records of an outcome",
    "export: a page's end",
}


@pytest.fixture(scope="module")
def filled(postgres_server):
    url = postgres_server.create("filled")
    upgrade(url)
    database = Database(url)
    fill(database, ROWS)
    with database.transaction() as session:
        Counts(session).count_new_rows()
        session.execute(text("ANALYZE measurement_counts"))
    yield database
    database.dispose()
    postgres_server.drop("filled")


def plans_of(database, act):
    """By statement."""
    with database.transaction() as session, listening(database.engine) as heard:
        session.execute(text("SET LOCAL enable_seqscan = off"))
        act(session)
        session.flush()
        said = [*heard]
        found = {one.sql: plan(session, one) for one in said}
        session.rollback()
    return found


@pytest.fixture(scope="module")
def acts(filled):
    with filled.session() as session:
        met = Met.of(session)
    return reads(met) | writes(met)


def walks(steps, name):
    allowed = name in PAGES
    return [
        step
        for step in steps
        if (step.startswith("Seq Scan") and step.split()[-1] in LARGE)
        or (step.endswith("from its end") and "measurements" in step and not allowed)
    ]


def test_no_statement_walks_a_large_table(filled, acts):
    found = {
        name: {sql: steps for sql, steps in plans_of(filled, act).items() if walks(steps, name)}
        for name, act in acts.items()
        if name not in COMMANDS
    }
    assert {name: told for name, told in found.items() if told} == {}


USED = {
    "statistics": "pk_measurements",
    "withdraw": "ix_measurements_device",
    "a round is planned": "ix_measurements_workload",
    "a round is claimed": "ix_measurements_workload",
    "a round is proposed": "ix_rounds_workload",
    "refit: growth since": "ix_measurements_workload",
    "activity": "ix_rounds_finished",
    "standings": "ix_rounds_workload",
    "events": "pk_events",
    "waiting": "ix_held_work_waiting",
}


@pytest.mark.parametrize("name", USED)
def test_what_was_slow_is_answered_from_its_index(filled, acts, name):
    steps = [step for plan in plans_of(filled, acts[name]).values() for step in plan]
    assert any(USED[name] in step for step in steps), steps
