"""Migrations lead from nothing to exactly the tables of the code, whoever runs them and how often."""

import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import MetaData, insert, inspect, select, text

from mallorn.core.errors import Conflict, Unavailable
from mallorn.core.job_options import JobOptions
from mallorn.core.targets import Target, parse_target
from mallorn.core.virtual_devices import add_virtual_device
from mallorn.db.database_clock import now
from mallorn.db.migrate import check_table_version, upgrade
from mallorn.db.repositories.jobs import JobFilter, JobLabels, Jobs
from mallorn.db.repositories.measuring_contexts import Contexts
from mallorn.db.repositories.targets import Targets
from mallorn.db.session import Database
from mallorn.db.tables import Base, Model
from tests.fixtures.rows import new_job


@pytest.fixture
def empty(empty_database_url):
    database = Database(empty_database_url)
    yield database
    database.dispose()


def test_migrations_make_exactly_the_tables_of_the_code(empty):
    upgrade(empty.url)
    with empty.engine.connect() as connection:
        found = compare_metadata(MigrationContext.configure(connection), Base.metadata)
        assert found == []


def test_rows_written_by_hand_get_the_databases_time(empty):
    upgrade(empty.url)
    with empty.transaction() as session:
        columns = "(id, owner, name, size_bytes)"
        session.execute(text(f"INSERT INTO models {columns} VALUES ('m', 'ada', 'mlp', 1)"))
        age = session.execute(select(now() - Model.created_at)).scalar_one()
    assert abs(age) < 600, "seconds since the epoch, of one time zone"


def test_constraints_have_the_names_of_the_code(empty):
    upgrade(empty.url)
    inspector = inspect(empty.engine)
    for table in Base.metadata.tables.values():
        assert inspector.get_pk_constraint(table.name)["name"] == table.primary_key.name
        found = {key["name"] for key in inspector.get_foreign_keys(table.name)}
        assert found == {str(key.name) for key in table.foreign_key_constraints}


def test_jobs_of_the_version_before_labels_get_labels_stay_and_write_to_the_dataset(empty):
    upgrade(empty.url, "0.2.0.18")
    old = MetaData()
    old.reflect(empty.engine, only=["targets", "jobs"])
    new = asdict(new_job()) | {"id": "old", "state": "queued", "reason": "", "event_count": 0}
    with empty.transaction() as session:
        session.execute(insert(old.tables["targets"]).values(id=1, key="t", text="{}"))
        session.execute(insert(old.tables["jobs"]).values(new | {"created_at": 1.0}))
    upgrade(empty.url)
    with empty.transaction() as session:
        JobLabels(session).change("old", {"team": "vision"})
        (job,) = Jobs(session).list("ada", JobFilter(labels=[("team", "vision")])).items
        assert (job.id, job.dataset) == ("old", "write")


@pytest.mark.parametrize("builder", [None, "0.27.0+code"])
def test_old_contexts_of_a_gpu_say_what_was_done_and_those_of_others_stay(empty, builder):
    """Times taken after the upgrade under the same conditions belong to the same context."""
    gpu = parse_target({"kind": "cuda", "arch": "sm_90a"})
    others = parse_target({"kind": "llvm", "num-cores": 2}), add_virtual_device(gpu, "simulated")
    old = {"number": 3, "repeat": 1, "min_repeat_ms": 100, "stopping": "racing"}
    caches = {"auto": "warm", "on": "cold", "off": "kept"}
    upgrade(empty.url, "0.2.0.27")
    with empty.transaction() as session:
        target_ids = {target: Targets(session).ensure(target).id for target in (gpu, *others)}
        machine = "host", "0.27.0", 2
        before: dict[tuple[Target, str], int] = {}
        for target, target_id in target_ids.items():
            for flush, cache in caches.items():
                fields = target_id, *machine, old | {"cache": cache}, builder
                before[target, flush] = Contexts(session).ensure(*fields).id
        inside = {"cache": "model", "beside": 0, "model": "m"}
        inside_id = Contexts(session).ensure(target_ids[gpu], *machine, inside, builder).id
        foreign_id = Contexts(session).ensure(target_ids[gpu], *machine, {"log": "metaschedule"}).id
    upgrade(empty.url)
    with empty.transaction() as session:
        for (target, flush), context_id in before.items():
            timing = JobOptions.model_validate({"evaluator": {"flush_l2": flush}}).timing(target)
            found = Contexts(session).ensure(target_ids[target], *machine, timing, builder)
            assert (found.id, found.evaluator) == (context_id, timing)
        timing = JobOptions().timing_inside(gpu, "m", 0)
        assert Contexts(session).ensure(target_ids[gpu], *machine, timing, builder).id == inside_id
        assert Contexts(session).get(foreign_id).evaluator == {"log": "metaschedule"}


def test_a_second_upgrade_changes_nothing(empty):
    upgrade(empty.url)
    upgrade(empty.url)
    check_table_version(empty)


def test_processes_that_upgrade_at_once_all_succeed(empty):
    patient = (
        "import mallorn.db.engine; mallorn.db.engine.BUSY_TIMEOUT_MS *= 10"  # the last waits for all others
    )
    script = f"{patient}; import sys; from mallorn.db.migrate import upgrade; upgrade(sys.argv[1])"
    command = [sys.executable, "-c", script, empty.url]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(3)]
    errors = [process.communicate()[1].decode() for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], errors
    check_table_version(empty)


def test_check_names_the_command_for_an_empty_database(empty):
    with pytest.raises(Conflict, match="tables of the database are of another version") as caught:
        check_table_version(empty)
    assert caught.value.hint == "mallorn migrate"


def test_the_database_of_a_newer_version_is_left_alone(empty):
    upgrade(empty.url)
    with empty.transaction() as session:
        session.execute(text("UPDATE alembic_version SET version_num = '9.9.9'"))
    for action in (lambda: check_table_version(empty), lambda: upgrade(empty.url)):
        with pytest.raises(Conflict, match="newer Mallorn"):
            action()


def test_the_database_of_a_development_version_is_left_alone(empty):
    upgrade(empty.url)
    with empty.transaction() as session:
        session.execute(text("UPDATE alembic_version SET version_num = '0008'"))
    for action in (lambda: check_table_version(empty), lambda: upgrade(empty.url)):
        with pytest.raises(Conflict, match=r"before 0\.1\.0") as caught:
            action()
        assert caught.value.hint.startswith("mallorn dataset import")


def test_a_failed_upgrade_leaves_nothing_behind(empty):
    with empty.transaction() as session:
        session.execute(text("CREATE TABLE schedules (id integer)"))  # the last one that is made
    with pytest.raises(Exception, match="schedules"):
        upgrade(empty.url)
    assert inspect(empty.engine).get_table_names() == ["schedules"]


def test_upgrade_makes_the_directory_of_a_sqlite_file(tmp_path):
    file = tmp_path / "new" / "home" / "mallorn.db"
    upgrade(f"sqlite:///{file}")
    assert file.exists()


def test_a_home_that_cannot_be_made_is_named(tmp_path):
    Path(tmp_path / "file").touch()
    with pytest.raises(Unavailable, match="cannot create"):
        upgrade(f"sqlite:///{tmp_path / 'file' / 'mallorn.db'}")
