"""Migrations lead from nothing to exactly the tables of the code, whoever runs them and how often."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import inspect, select, text

from db.clock import now
from db.migrate import check, upgrade
from db.repositories.holds import Hold, Holds, WorkItem
from db.repositories.rounds import Rounds
from db.repositories.work_items import WorkItems
from db.session import Database
from db.tables import Base, CostModel, HeldWork, Job, Model
from mallorn.core.errors import Conflict, Unavailable
from mallorn.core.states import Cause, RoundState, WorkKind


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


def test_a_second_upgrade_changes_nothing(empty):
    upgrade(empty.url)
    upgrade(empty.url)
    check(empty)


def test_processes_that_upgrade_at_once_all_succeed(empty):
    patient = "import db.engine; db.engine.BUSY_TIMEOUT_MS *= 10"  # the last waits for all others
    script = f"{patient}; import sys; from db.migrate import upgrade; upgrade(sys.argv[1])"
    command = [sys.executable, "-c", script, empty.url]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(3)]
    errors = [process.communicate()[1].decode() for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], errors
    check(empty)


def test_check_names_the_command_for_an_empty_database(empty):
    with pytest.raises(Conflict, match="not at this version's tables") as caught:
        check(empty)
    assert caught.value.hint == "mallorn migrate"


def test_the_database_of_a_newer_version_is_left_alone(empty):
    upgrade(empty.url)
    with empty.transaction() as session:
        session.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    for action in (lambda: check(empty), lambda: upgrade(empty.url)):
        with pytest.raises(Conflict, match="newer Mallorn"):
            action()


def test_a_failed_upgrade_leaves_nothing_behind(empty):
    with empty.transaction() as session:
        session.execute(text("CREATE TABLE schedules (id integer)"))  # the last one that 0001 makes
    with pytest.raises(Exception, match="schedules"):
        upgrade(empty.url)
    assert inspect(empty.engine).get_table_names() == ["schedules"]


def test_upgrade_makes_the_directory_of_a_sqlite_file(tmp_path):
    file = tmp_path / "new" / "home" / "mallorn.db"
    upgrade(f"sqlite:///{file}")
    assert file.exists()


def test_a_home_that_cannot_be_made_is_named(tmp_path):
    Path(tmp_path / "file").touch()
    with pytest.raises(Unavailable, match="cannot create the directory"):
        upgrade(f"sqlite:///{tmp_path / 'file' / 'mallorn.db'}")


def insert(session, table, **row):
    """A row as some older version wrote it."""
    names = ", ".join(f'"{name}"' for name in row)
    values = {name: json.dumps(value) if isinstance(value, dict) else value for name, value in row.items()}
    marks = ", ".join(f":{name}" for name in row)
    session.execute(text(f"INSERT INTO {table} ({names}) VALUES ({marks})"), values)


def insert_target(session):
    insert(session, "targets", id=1, key="k", text="{}")


def insert_job(session, name, **changes):
    """A job of the version 0007 or before."""
    words = {"owner": "ada", "name": "mlp", "model_id": "m", "state": "queued", "reason": "", "options": {}}
    zeros = dict.fromkeys(("seed", "priority", "event_count", "attempts", "stage_losses"), 0)
    insert(session, "jobs", **{"id": name, "target_id": 1, "trials": 64, **words, **zeros, **changes})


def test_jobs_keep_their_budgets_and_later_ones_may_have_none(empty):
    upgrade(empty.url, "0004")
    with empty.transaction() as session:
        insert_target(session)
        insert_job(session, "old")
    upgrade(empty.url, "0007")
    with empty.transaction() as session:
        insert_job(session, "new", trials=None)
    upgrade(empty.url)
    with empty.session() as session:
        budgets = dict(session.execute(select(Job.id, Job.trials)).all())
        assert session.scalars(select(Job.created_at).where(Job.id == "new")).one() > 0
    assert budgets == {"old": 64, "new": None}


def test_what_only_words_and_the_log_told_of_a_job_is_data_from_now_on(empty):
    upgrade(empty.url, "0007")
    here = "waits for a device for {}\nmallorn device"
    there = "waited 10 minutes for a device for {}: this machine cannot run it, no cuda\nmallorn device"
    with empty.transaction() as session:
        insert_target(session)
        insert_job(session, "mine", state="paused", reason="paused by its owner")
        insert_job(session, "waits", state="tuning", reason=here)
        insert_job(session, "elsewhere", state="paused", reason=there)
        insert_job(session, "finishing", state="finishing", reason="the budget is spent; 1 of 2 tasks")
        for seq, why in enumerate(("too early", "the budget is spent"), 1):
            news = {"kind": "finishing", "payload": {"why": why}}
            insert(session, "events", job_id="finishing", seq=seq, **news)
        insert_job(session, "failed", state="failed", reason="no")
        news = {"kind": "failed", "payload": {"suggest": {"input_shapes": {"x": [1]}}}}
        insert(session, "events", job_id="failed", seq=1, **news)
    upgrade(empty.url)
    with empty.session() as session:
        jobs = {job.id: job for job in session.scalars(select(Job))}
    causes = {name: (job.cause, job.cause_detail) for name, job in jobs.items() if job.cause != Cause.OTHER}
    assert causes == {
        "mine": (Cause.OWNER, ""),
        "waits": (Cause.NO_DEVICE, ""),
        "elsewhere": (Cause.NOT_HERE, "no cuda"),
    }
    assert jobs["finishing"].tuning_ended == "the budget is spent"
    assert jobs["failed"].suggest.stored() == {"input_shapes": {"x": [1]}}
    assert jobs["mine"].suggest is None


def insert_round(session, number, state, **changes):
    """A round of the version 0007 or before, of a workload of its own."""
    workload = {"key": f"w{number}", "name": "dense", "op": "dense", "structure": "s", "tir": b""}
    more = {"flops": 1.0, "args": {}, "features": {}, "tvm_version": "0"}
    insert(session, "workloads", id=number, **workload, **more)
    zeros = dict.fromkeys(("family_since", "known_at_start"), 0)
    words = dict.fromkeys(("family", "family_why", "retired"), "")
    task = {"id": number, "job_id": "tuning", "index": number, "name": "dense", "weight": 1}
    insert(session, "tasks", workload_id=number, **task, **zeros, **words)
    which = {"id": number, "job_id": "tuning", "task_id": number, "workload_id": number, "target_id": 1}
    how = {"index": number, "size": 8, "seed": 0, "searcher": "random", "seen_upto": 0, "reason": {}}
    lease = {"attempt": 0, "losses": 0, "error": "", "sent_at": 100.0}
    insert(session, "rounds", state=state, **which, **how, **{**lease, **changes})


def test_who_holds_what_is_carried_over_with_its_tokens(empty):
    upgrade(empty.url, "0008")
    held = {"worker": "w", "lease_until": 9e9}
    with empty.transaction() as session:
        insert_target(session)
        insert_job(session, "queued", created_at=50.0)
        own = {"attempts": 5, "stage_losses": 2, "stage_worker": "w", "stage_lease_until": 9e9}
        insert_job(session, "finishing", state="finishing", stage_sent_at=70.0, **own)
        insert_job(session, "done", state="done", attempts=3)
        insert_job(session, "tuning", state="tuning", attempts=1)
        insert_round(session, 1, "queued", attempt=1, losses=1)
        insert_round(session, 2, "leased", attempt=4, losses=2, **held)
        insert_round(session, 10, "done", attempt=2, worker="w")
        insert(session, "leases", name="plan:target:1", holder="c", token=7, until=9e9)
        insert(session, "leases", name="plan:target:2", holder="", token=8, until=0.0)
    upgrade(empty.url)
    with empty.session() as session:
        found = {
            (row.kind, row.subject): (row.attempt, row.losses, row.holder, row.until, row.sent_at)
            for row in session.scalars(select(HeldWork))
        }
    stages = {key: row for key, row in found.items() if key[0] in (WorkKind.IMPORT, WorkKind.FINISH)}
    assert found.items() - stages.items() == {
        ((WorkKind.ROUND, "1"), (1, 1, None, None, 100.0)),
        ((WorkKind.ROUND, "2"), (4, 2, "w", 9e9, 100.0)),
        ((WorkKind.ROUND, "10"), (2, 0, None, None, None)),
        ((WorkKind.PLAN, "1"), (7, 0, "c", 9e9, None)),
        ((WorkKind.PLAN, "2"), (8, 0, None, None, None)),
    }
    resting = {key for key, row in stages.items() if row[1:] == (0, None, None, None)}
    assert {key: stages[key] for key in stages.keys() - resting} == {
        (WorkKind.IMPORT, "queued"): (0, 0, None, None, 50.0),
        (WorkKind.FINISH, "finishing"): (5, 2, "w", 9e9, 70.0),
    }
    assert {stages[kind, "done"][0] for kind in (WorkKind.IMPORT, WorkKind.FINISH)} == {3}


def test_a_worker_goes_on_with_a_round_that_it_held_before_the_upgrade(empty):
    upgrade(empty.url, "0007")
    with empty.transaction() as session:
        insert_target(session)
        insert_job(session, "tuning", state="tuning")
        insert_round(session, 1, "leased", attempt=4, worker="w", lease_until=9e9)
        insert_round(session, 2, "leased", attempt=2, losses=2, worker="dead", lease_until=1.0)
    upgrade(empty.url)
    with empty.transaction() as session:
        assert not Rounds(session).close(1, 3, RoundState.DONE)
        assert Holds(session).renew(Hold(WorkItem.round(1), 4), 60)
        (lost,) = WorkItems(session).expire()
        assert (lost.hold.item, lost.given_up) == (WorkItem.round(2), True)
        assert Rounds(session).get(2).state == RoundState.POISON
        assert Rounds(session).close(1, 4, RoundState.DONE)


def test_the_newest_versions_of_cost_models_become_the_active_ones(empty):
    upgrade(empty.url, "0001")
    with empty.transaction() as session:
        session.execute(text("INSERT INTO targets (id, key, text) VALUES (1, 'k', '{}')"))
        for family, version in (("a", 1), ("a", 2), ("b", 1)):
            columns = "(family, target_id, name, version, seen_upto, rows, metrics, blob)"
            values = {"family": family, "version": version, "blob": b"model"}
            row = "(:family, 1, 'forest', :version, 1, 1, '{}', :blob)"
            session.execute(text(f"INSERT INTO cost_models {columns} VALUES {row}"), values)
    upgrade(empty.url)
    with empty.session() as session:
        active = session.execute(select(CostModel.family, CostModel.version).where(CostModel.active)).all()
    assert sorted(active) == [("a", 2), ("b", 1)]
