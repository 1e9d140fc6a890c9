"""What teams run in front of the database, with the real programs: a pooler that gives transactions away."""

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from sqlalchemy import text

from mallorn.db.engine import create_engine
from mallorn.db.migrate import check_table_version, upgrade
from mallorn.db.repositories.claim_and_release_work import WorkItems
from mallorn.db.repositories.stored_files import Models
from mallorn.db.session import Database
from tests.fixtures.pooler import Pooler
from tests.fixtures.service import JOB_SEC, measured_well, start_service, stop_service, trials
from tests.fixtures.workshop import Workshop

pytestmark = [pytest.mark.postgres, pytest.mark.long]


@pytest.fixture
def pooled(pooler: Pooler, empty_postgres: str) -> str:
    """A database without any table, through the pooler."""
    return pooler.url(empty_postgres.rpartition("/")[2].partition("?")[0])


@pytest.fixture
def opened(pooled: str) -> Iterator[Callable[[float], Database]]:
    """Opens it as processes do that give it so many seconds for a statement."""
    with ExitStack() as stack:

        def go(answer_sec: float) -> Database:
            database = Database(pooled, answer_sec=answer_sec)
            stack.callback(database.dispose)
            return database

        yield go


@pytest.fixture
def database_url(pooled: str) -> str:
    """A migrated database, through the pooler."""
    upgrade(pooled)
    return pooled


def test_processes_share_two_connections_and_leave_nothing_on_them(
    pooled: str, opened: Callable[[float], Database]
) -> None:
    upgrade(pooled)
    databases = [opened(answer_sec) for answer_sec in (1, 4, 30)]
    for number in range(20):
        for database in databases:
            with database.transaction() as session:
                Models(session).add(f"{number:064}", "ada", "mlp", 1)
    for database in databases:
        with database.session() as session:
            assert len(Models(session).list(None).items) == 20
    engine = create_engine(pooled)
    with engine.connect() as connection:
        assert connection.scalar(text("SHOW statement_timeout")) == "0"
        assert connection.scalar(text("SELECT count(*) FROM pg_prepared_statements")) == 0
    engine.dispose()
    check_table_version(databases[0])


def test_a_claim_skips_work_of_a_claim_on_the_other_connection_and_has_its_own_time_limit(
    workshop: Workshop,
) -> None:
    for name in ("w0", "w1"):
        workshop.plan(workshop.job((name,)))
    limited = Database(workshop.database.engine.url.render_as_string(hide_password=False), answer_sec=7)
    with limited, limited.transaction() as session:
        taken = WorkItems(session).claim_best(workshop.ability(), "slow", 60.0)
        assert taken is not None
        assert session.scalar(text("SHOW statement_timeout")) == "7s"
        with ThreadPoolExecutor(4) as pool:  # they take turns on the connection that is left
            claims = list(pool.map(lambda number: workshop.claim(name=f"w{number}"), range(4)))
        assert session.scalar(text("SHOW statement_timeout")) == "7s"
    [other] = [hold for hold in claims if hold is not None]
    assert other.item != taken.item
    assert workshop.held(taken.item).holder == "slow"


def test_a_whole_job_is_tuned_through_the_pooler(pooled: str, tmp_path: Path, networks: Path) -> None:
    """Coordinator, control, two workers and the supervisor, all on two connections."""
    service = start_service(tmp_path, MALLORN_DATABASE_URL=pooled)
    try:
        job = service.client.submit(networks / "mlp.onnx", trials=16)
        assert job.wait(timeout_sec=JOB_SEC).state == "done"
        ours = Counter(measured_well(trials(service.client, job)).values())
        assert set(ours) == {1}
        said = "".join(log.read_text() for log in service.data.logs.glob("*.log"))
        assert "prepared statement" not in said
        assert "Traceback" not in said
    finally:
        stop_service(service)
