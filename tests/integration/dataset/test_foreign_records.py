"""Others' records are stored once, come back as they were, and are no measurements."""

import json
from pathlib import Path

import pytest

from db.repositories.foreign_records import ForeignRecords
from db.repositories.statistics import Statistics
from db.session import Database
from mallorn.core.outcomes import Outcome
from research.foreign.lines import Problem
from research.foreign.loading import Loaded, find_logs, load_log
from tests.integration.dataset.conftest import stored


def line(task: str, cost: float, code: int = 0) -> str:
    return json.dumps({"i": [[task, "llvm"], [[], [["CI", 1]]]], "r": [[cost], code, 1.0, 1600000000]}) + "\n"


def load(database: Database, path: Path) -> tuple[Loaded, list[Problem]]:
    problems: list[Problem] = []
    [log] = find_logs(path)
    return load_log(database, log, problems.append), problems


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("research.foreign.loading.BATCH", 2)
    file = tmp_path / "records.json"
    file.write_text(line("a", 1e-3) + line("b", 2e-3) + "torn\n" + line("a", 1e10, 7))
    return file


def test_records_come_back_as_they_were_logged(database: Database, log: Path) -> None:
    loaded, [problem] = load(database, log)
    assert (loaded.added, loaded.known, loaded.bad, problem.line) == (3, 0, 1, 3)
    with database.session() as session:
        (number, first), *rest = ForeignRecords(session).page()
        assert ForeignRecords(session).page(after=number, limit=1) == rest[:1]
    assert (first.format, first.task, first.target, first.steps) == ("tenset", "a", "llvm", '[["CI",1]]')
    assert (first.latency_us, first.run_us) == (pytest.approx(1000), (pytest.approx(1000),))
    assert [(row.task, row.outcome, row.latency_us) for _, row in rest] == [
        ("b", Outcome.OK, pytest.approx(2000)), ("a", Outcome.RUN_TIMEOUT, None)
    ]  # fmt: skip
    assert first.task_key == rest[1][1].task_key


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
    assert [(count.name, count.count) for count in everything.foreign] == [("tenset", 3)]
    assert (everything.measurements, mine.foreign) == (0, [])
