"""What stock MetaSchedule measured teaches here: programs become workloads, traces candidates, times rows."""

import json
from pathlib import Path

import pytest
from sqlalchemy import select

from mallorn.core.outcomes import Outcome
from mallorn.core.targets import parse_target
from mallorn.core.values.manifest import RECORDS
from mallorn.db.dataset.snapshots import ignore_progress
from mallorn.db.measurement_codec import unpack_times
from mallorn.db.repositories.dataset_statistics import Statistics
from mallorn.db.repositories.snapshots import Selection
from mallorn.db.repositories.targets import Targets
from mallorn.db.repositories.tasks import STOCK
from mallorn.db.repositories.trials import Trials
from mallorn.db.session import Database
from mallorn.db.tables import Context, Measurement, SourceDataset, Workload
from mallorn.workers.interfaces.model_compiler import BadLine
from mallorn.workers.shared_schedules.read_json_lines import LoadedLog
from mallorn.workers.tvm.programs.workload_key import workload_key
from mallorn.workers.tvm.records.tuning_database import plain_target, read_metaschedule_log
from mallorn.workers.tvm.space.sketches import design_space
from mallorn_research.pretraining.read_measurements import read_measurements
from mallorn_research.tuner_logs.store_tuner_logs import find_logs, load_log
from tests.fixtures.stock_logs import product, write_log
from tests.fixtures.stored import workload_named

ON_SQLITE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
ATTRS = {"kind": "llvm", "mcpu": "haswell", "num-cores": 2}
TARGET = parse_target(ATTRS)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    write_log(tmp_path / "stock", product(), ATTRS)
    return tmp_path / "stock"


def load(database: Database, path: Path) -> tuple[LoadedLog, list[BadLine]]:
    problems: list[BadLine] = []
    [found] = find_logs(path)
    return load_log(database, found, problems.append), problems


def test_programs_and_traces_are_those_that_an_import_would_find(log: Path) -> None:
    found = read_metaschedule_log(str(log), 0, 99)
    assert (found.problems, found.lines) == ([], len(found.records))
    task = found.records[0].task
    assert {record.task.key for record in found.records} == {workload_key(product())}
    ours = {sketch.key for sketch in design_space(task.tir, TARGET.text)}
    assert {record.sketch.key for record in found.records} <= ours
    assert {record.target for record in found.records} == {TARGET.text}


def test_only_the_lines_that_were_asked_for_are_read(log: Path) -> None:
    whole, second = read_metaschedule_log(str(log), 0, 99), read_metaschedule_log(str(log), 1, 1)
    assert second.records == whole.records[1:2]
    assert second.lines == 1


@pytest.mark.parametrize(
    ("written", "told"),
    [
        (ATTRS, ATTRS),
        ({**ATTRS, "mtriple": "aarch64-linux-gnu"}, {**ATTRS, "mtriple": "aarch64-linux-gnu"}),
    ],
)
def test_a_target_is_told_as_a_user_names_it(written: dict[str, object], told: dict[str, object]) -> None:
    assert plain_target(written) == parse_target(told).text


def test_records_become_rows_of_a_context_of_their_own_once(log: Path, database: Database) -> None:
    loaded, problems = load(database, log)
    lines = len((log / RECORDS).read_text().splitlines())
    assert (loaded.added, loaded.known, loaded.kept, problems) == (lines, 0, 0, [])
    again, _ = load(database, log)
    assert (again.added, again.known, again.kept) == (0, lines, 0)
    with database.session() as session:
        rows = session.scalars(select(Measurement).order_by(Measurement.id)).all()
        assert [row.outcome for row in rows] == [Outcome.RUN_ERROR, *[Outcome.OK] * (lines - 1)]
        assert unpack_times(rows[1].run_us or b"") == pytest.approx((2000.0, 2200.0))
        assert {row.origin for row in rows} == {"metaschedule"}
        context = session.scalars(select(Context)).one()
        assert (context.host_class, context.evaluator) == ("unknown", {"log": "metaschedule"})
        assert Statistics(session).of(None).foreign_records == []
        assert session.scalars(select(SourceDataset.key)).all() == [STOCK]


@ON_SQLITE
def test_they_teach_and_the_fastest_is_measured_by_the_next_job(log: Path, database: Database) -> None:
    load(database, log)
    with database.transaction() as session:
        target_id = Targets(session).ensure(TARGET).id
        workload = session.scalars(select(Workload)).one()
        [brought] = Trials(session).best(workload.id, target_id, imported=True)
        assert brought.latency_us == pytest.approx(2100.0)
        assert Trials(session).best(workload.id, target_id) == []
        workload_named(session, workload_key(product()))
    [task] = read_measurements(database, None, Selection(), ignore_progress).tasks
    assert task.op == "matmul"
    assert sum(latency is not None for latency in task.latencies_us) == len(task.trials) - 1


@ON_SQLITE
def test_what_does_not_rebuild_is_kept_as_the_log_has_it(log: Path, database: Database) -> None:
    first, *rest = (log / RECORDS).read_text().splitlines()
    index, (trace, seconds, target, arguments) = json.loads(first)
    trace[0][0][0] = "AnInstructionOfTheirOwn"
    foreign = json.dumps([index, [trace, seconds, target, arguments]])
    (log / RECORDS).write_text("\n".join([foreign, *rest, "torn"]) + "\n")
    loaded, problems = load(database, log)
    assert (loaded.added, loaded.kept) == (1 + len(rest), 1)
    assert [problem.line for problem in problems] == [len(rest) + 2]
    with database.session() as session:
        assert [(of.name, of.count) for of in Statistics(session).of(None).foreign_records] == [
            ("metaschedule", 1)
        ]
