"""Others' records are stored once, come back as they were, and are no measurements."""

import json
from pathlib import Path

import pytest
from sqlalchemy import select

from mallorn.core.outcomes import Outcome
from mallorn.db.measurement_codec import unpack_text, unpack_times
from mallorn.db.repositories.dataset_statistics import Statistics
from mallorn.db.session import Database
from mallorn.db.tables import ForeignRecord, ForeignTask
from mallorn.workers.interfaces.model_compiler import BadLine
from mallorn.workers.shared_schedules.read_json_lines import LoadedLog
from mallorn_research.tuner_logs.store_tuner_logs import find_logs, load_log
from tests.fixtures.filled_dataset import stored


def line(task: str, cost: float, code: int = 0) -> str:
    return json.dumps({"i": [[task, "llvm"], [[], [["CI", 1]]]], "r": [[cost], code, 1.0, 1600000000]}) + "\n"


def load(database: Database, path: Path) -> tuple[LoadedLog, list[BadLine]]:
    problems: list[BadLine] = []
    [log] = find_logs(path)
    return load_log(database, log, problems.append), problems


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("mallorn_research.tuner_logs.store_tuner_logs.BATCH", 2)
    file = tmp_path / "records.json"
    file.write_text(line("a", 1e-3) + line("b", 2e-3) + "torn\n" + line("a", 1e10, 7))
    return file


def test_records_come_back_as_they_were_logged(database: Database, log: Path) -> None:
    loaded, [problem] = load(database, log)
    assert (loaded.added, loaded.known, problem.line) == (3, 0, 3)
    with database.session() as session:
        query = select(ForeignRecord, ForeignTask).join(ForeignTask).order_by(ForeignRecord.id)
        (first, task), (second, other), (third, same) = session.execute(query).all()
    assert (task.format, task.task, task.target) == ("tenset", "a", "llvm")
    assert (unpack_text(first.steps), unpack_times(first.run_us)) == ('[["CI",1]]', (pytest.approx(1000),))
    assert (first.outcome, first.latency_us) == (Outcome.OK, pytest.approx(1000))
    assert (other.task, second.outcome, second.latency_us) == ("b", Outcome.OK, pytest.approx(2000))
    assert (same, third.outcome, third.latency_us) == (task, Outcome.RUN_TIMEOUT, None)


def test_a_log_that_grew_adds_what_is_new(database: Database, log: Path) -> None:
    load(database, log)
    with log.open("a") as file:
        file.write(line("a", 5e-3))
    loaded, _ = load(database, log)
    assert (loaded.added, loaded.known) == (1, 3)


def test_others_records_are_no_measurements(database: Database, log: Path) -> None:
    load(database, log)
    assert stored(database) == []
    with database.session() as session:
        everything, mine = Statistics(session).of(None), Statistics(session).of("ada")
    assert [(count.name, count.count) for count in everything.foreign_records] == [("tenset", 3)]
    assert (everything.measurements, mine.foreign_records) == (0, [])
