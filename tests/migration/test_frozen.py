"""Databases of every version that was released: this version upgrades them and goes on with their jobs."""

import gzip
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib.metadata import version as version_of
from pathlib import Path

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Engine, event, func, inspect, select, text, update

from mallorn.core.states import JobState
from mallorn.core.values.event import OtherEvent, read_event
from mallorn.db.migrate import check_table_version, upgrade
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.measuring_contexts import Contexts
from mallorn.db.session import Database
from mallorn.db.tables import Base, Context, Event, Job, Measurement, Round
from mallorn.workers.device.detect_host import read_host_facts
from tests.fixtures.database import POSTGRES_LONG
from tests.fixtures.transcript import Terminal, Typed
from tests.migration.freezing import FROZEN

VERSIONS = sorted(path.name for path in FROZEN.iterdir())


@dataclass
class Frozen:
    """What a service of an old version left behind, in the home of somebody with this version."""

    database: Database
    terminal: Terminal

    def job(self, state: JobState) -> str:
        with self.database.session() as session:
            return str(session.scalars(select(Job.id).where(Job.state == state)).one())

    def measured(self, job: str) -> dict[int, tuple[int, bytes]]:
        """The job's committed measurements: their ids, and which candidate each is of."""
        columns = Measurement.id, Measurement.sketch_id, Measurement.decisions
        with self.database.session() as session:
            found = session.execute(select(*columns).where(Measurement.job_id == job))
            return {number: (sketch, decisions) for number, sketch, decisions in found}

    def move_here(self) -> None:
        """Have this machine be the one that measured: on another no job goes on."""
        here, tvm = read_host_facts()["host_class"], version_of("apache-tvm")
        with self.database.transaction() as session:
            for found in session.scalars(select(Context)).all():
                facts = found.target_id, here, tvm, found.threads, found.evaluator
                moved = Contexts(session).ensure(*facts)
                for table in (Job, Measurement):
                    theirs = update(table).where(table.context_id == found.id)
                    session.execute(theirs.values(context_id=moved.id))

    def type(self, command: str) -> str:
        return "\n".join(self.terminal.type(Typed((command,), (), {})).printed)


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def frozen(version: str, empty_database_url: str, tmp_path: Path) -> Iterator[Frozen]:
    home = tmp_path / "home"
    home.mkdir()
    terminal = Terminal(home)
    shutil.copytree(FROZEN / version / "artifacts", terminal.data.path / "artifacts")
    load(FROZEN / version, empty_database_url)
    terminal.env["MALLORN_DATABASE_URL"] = empty_database_url
    database = Database(empty_database_url)
    yield Frozen(database, terminal)
    terminal.close()
    database.dispose()


def load(folder: Path, url: str) -> None:
    """Bring a dump back into a database without any table."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            connection.executescript(unpacked(folder / "sqlite.sql.gz"))
    else:
        with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
            connection.execute(unpacked(folder / "postgres.sql.gz").encode())


def unpacked(file: Path) -> str:
    return gzip.decompress(file.read_bytes()).decode()


def rows(database: Database) -> dict[str, int]:
    with database.session() as session:
        tables = Base.metadata.tables.items()
        return {name: session.scalar(select(func.count()).select_from(table)) or 0 for name, table in tables}


def test_an_upgrade_keeps_every_row_and_ends_at_the_tables_of_the_code(frozen: Frozen) -> None:
    upgrade(frozen.database.url)
    check_table_version(frozen.database)
    with frozen.database.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []
    kept = rows(frozen.database)
    assert kept["jobs"] == 3
    assert kept["measurements"] == sum(len(frozen.measured(frozen.job(state))) for state in STATES)


class Died(BaseException):
    """As a process does that is killed there."""


@contextmanager
def dying(statements: int) -> Iterator[None]:
    """Whoever runs so many statements dies."""
    left = iter(range(statements))

    def count(*_told: object) -> None:
        if next(left, None) is None:
            raise Died

    event.listen(Engine, "before_cursor_execute", count)
    try:
        yield
    finally:
        event.remove(Engine, "before_cursor_execute", count)


def told(database: Database) -> dict[str, int]:
    """Every table that there is, and how many rows it has."""
    with database.engine.connect() as connection:
        names = inspect(connection).get_table_names()
        counts = {name: connection.execute(text(f'SELECT count(*) FROM "{name}"')) for name in names}
        return {name: int(count.scalar_one()) for name, count in counts.items()}


def test_an_upgrade_that_dies_at_any_statement_leaves_everything_to_the_next(frozen: Frozen) -> None:
    before, survived = told(frozen.database), 0
    while True:
        try:
            with dying(survived):
                upgrade(frozen.database.url)
        except Died:
            survived += 1
            assert told(frozen.database) == before
        else:
            break
    assert survived > len(VERSIONS)
    check_table_version(frozen.database)
    assert rows(frozen.database)["jobs"] == before["jobs"]


STATES = (JobState.DONE, JobState.TUNING, JobState.FAILED)


@pytest.mark.parametrize("empty_database_url", POSTGRES_LONG, indirect=True)
def test_a_job_that_was_cut_off_goes_on_and_measures_nothing_again(frozen: Frozen) -> None:
    job = frozen.job(JobState.TUNING)
    before = frozen.measured(job)
    assert before, "it was cut off in the middle"
    upgrade(frozen.database.url)
    frozen.move_here()
    frozen.type(f"mallorn resume {job} --out resumed")
    after = frozen.measured(job)
    assert before.items() <= after.items()
    with frozen.database.session() as session:
        assert Jobs(session).get(job, None).state == JobState.DONE


def test_figures_are_read_under_todays_names(frozen: Frozen) -> None:
    upgrade(frozen.database.url)
    with frozen.database.session() as session:
        job = Jobs(session).get(frozen.job(JobState.DONE), None)
        assert job.report is not None
        assert job.report.workload_count == 7
        recipe = job.graph.recipe if job.graph else None
        assert recipe is not None
        assert "conv3x3_to_winograd" in {step.name for step in recipe.before}
        planned = session.scalars(select(Round)).all()
        assert all(each.reason.forecast and each.reason.forecast.gain_probability for each in planned)
        events = [read_event(each.kind, each.payload) for each in session.scalars(select(Event))]
        assert not [event for event in events if isinstance(event, OtherEvent)]


def test_jobs_that_have_ended_are_shown_as_they_ended(frozen: Frozen) -> None:
    upgrade(frozen.database.url)
    assert "verdict:" in frozen.type(f"mallorn show {frozen.job(JobState.DONE)}")
    assert "no task matches" in frozen.type(f"mallorn show {frozen.job(JobState.FAILED)}")
