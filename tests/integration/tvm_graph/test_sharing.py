"""Folders of schedules: the same bytes for the same records, merged by importing, each context for itself."""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import select

from mallorn.core.errors import Conflict, InvalidRequest, NotFound
from mallorn.core.targets import parse_target
from mallorn.core.values.manifest import RECORDS, UNTIMED_SEC, WORKLOADS
from mallorn.db.repositories.measuring_contexts import Contexts
from mallorn.db.session import Database
from mallorn.db.tables import Context, Measurement
from mallorn.workers.interfaces.model_compiler import BadLine
from mallorn.workers.shared_schedules.import_records import import_schedules
from mallorn.workers.shared_schedules.target_folders import (
    PROVENANCE,
    TARGET,
    export_schedules,
    find_prunable,
    remove_records,
)
from mallorn_research.tuner_logs.store_tuner_logs import find_logs, load_log
from tests.fixtures.stock_logs import product, write_log

ATTRS = {"kind": "llvm", "mcpu": "haswell", "num-cores": 2}
New = Callable[..., Database]


@pytest.fixture
def new(sqlite_template: Path, tmp_path: Path) -> Iterator[New]:
    """Datasets, one after the other: copies of a file, or empty ones."""
    made: list[Database] = []

    def one(copied: Path | None = None) -> Database:
        file = tmp_path / f"{len(made)}.db"
        shutil.copyfile(copied or sqlite_template, file)
        made.append(Database(f"sqlite:///{file}"))
        return made[-1]

    yield one
    for database in made:
        database.dispose()


@dataclass(frozen=True)
class Taught:
    """A dataset that knows a log of one product, and the folder of its schedules."""

    file: Path
    root: Path
    directory: Path  # of the one target that there is


@pytest.fixture(scope="module")
def teach(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Taught]:
    """Make a dataset that knows a product of this size; it is copied by who changes it."""

    def one(size: int) -> Taught:
        folder = tmp_path_factory.mktemp("taught")
        file = Path(shutil.copyfile(sqlite_template, folder / "known.db"))
        with Database(f"sqlite:///{file}") as database:
            write_log(folder / "logs", product(size), ATTRS, failed=0)
            [log] = find_logs(folder / "logs")
            load_log(database, log, _never)
            return Taught(file, folder / "out", shared(database, folder / "out"))

    return one


@pytest.fixture(scope="module")
def known(teach: Callable[[int], Taught]) -> Taught:
    return teach(32)


@pytest.fixture(scope="module")
def other(teach: Callable[[int], Taught]) -> Taught:
    return teach(64)


def _never(problem: BadLine) -> None:
    raise AssertionError(problem)


def shared(database: Database, root: Path) -> Path:
    """The directory of the one target that there is."""
    [written] = export_schedules(database, root)
    return written.directory


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def spoilt(known: Taught, tmp_path: Path) -> Path:
    """A copy of a folder of schedules, to be changed."""
    return Path(shutil.copytree(known.root, tmp_path / "spoilt"))


def test_each_workload_has_its_fastest_record_beside_what_stock_reads(known: Taught) -> None:
    directory = known.directory
    assert directory.name == f"llvm-haswell-2.{parse_target(ATTRS).key}"
    assert json.loads((directory / TARGET).read_text()) == ATTRS
    names = {PROVENANCE, RECORDS, WORKLOADS}
    assert set(content(directory)) == {TARGET, *(f"matmul/{name}" for name in names)}
    [record] = (directory / "matmul" / RECORDS).read_text().splitlines()
    assert json.loads(record)[1][1] == pytest.approx([1e-3, 1.1e-3])


@pytest.mark.usefixtures("executed_children")
def test_the_same_records_are_the_same_bytes_wherever_they_went_and_none_is_promoted(
    known: Taught, new: New, tmp_path: Path
) -> None:
    there = new()
    loaded = import_schedules(there, known.root, _never)
    assert (loaded.added, loaded.known) == (1, 0)
    with there.session() as session:
        assert {row.kind for row in session.scalars(select(Measurement))} == {"foreign"}
    assert content(shared(there, tmp_path / "second")) == content(known.directory)
    assert shared(new(known.file), known.root) == known.directory
    again = import_schedules(there, known.root, _never)
    assert (again.added, again.known) == (0, 1)


def test_two_folders_are_merged_by_importing_both(
    known: Taught, other: Taught, new: New, tmp_path: Path
) -> None:
    both = new()
    for each in (known, other):
        import_schedules(both, each.root, _never)
    directory = shared(both, tmp_path / "both")
    assert len((directory / "matmul" / WORKLOADS).read_text().splitlines()) == 2


def test_contexts_are_kept_apart(known: Taught, new: New, tmp_path: Path) -> None:
    database = new(known.file)
    with database.transaction() as session:
        context = session.scalars(select(Context)).one()
        slow = session.scalars(select(Measurement).order_by(Measurement.latency_us.desc())).first()
        assert slow is not None
        slow.context_id = Contexts(session).ensure(context.target_id, "other", "0.27.0", 2, {}).id
    directory = shared(database, tmp_path / "out")
    lines = [json.loads(line) for line in (directory / "matmul" / PROVENANCE).read_text().splitlines()]
    assert [line["measured_on"]["host_class"] for line in lines] == ["unknown", "other"]


def test_an_export_loses_nothing_that_others_have_put_there(spoilt: Path, other: Taught, new: New) -> None:
    with pytest.raises(Conflict, match="has a record that this dataset lacks"):
        shared(new(other.file), spoilt)


def test_a_torn_line_costs_its_own_record(spoilt: Path, new: New) -> None:
    [records] = spoilt.rglob(RECORDS)
    records.write_text("torn\n")
    problems: list[BadLine] = []
    loaded = import_schedules(new(), spoilt, problems.append)
    assert (loaded.added, [each.line for each in problems]) == (0, [1])


def test_without_its_provenance_a_database_is_refused(spoilt: Path, new: New) -> None:
    [provenance] = spoilt.rglob(PROVENANCE)
    provenance.unlink()
    with pytest.raises(InvalidRequest, match="is missing"):
        import_schedules(new(), spoilt, _never)


def test_another_folder_is_no_folder_of_schedules(new: New, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="not a folder of schedules"):
        import_schedules(new(), tmp_path, _never)


def test_pruning_removes_what_does_not_rebuild_or_is_slower(known: Taught, spoilt: Path) -> None:
    assert find_prunable(known.root) == []
    [records] = spoilt.rglob(RECORDS)
    index, (trace, run_secs, *rest) = json.loads(records.read_text())
    slower = [index, [trace, [10 * sec for sec in run_secs], *rest]]
    broken = [index, [[[["GetSBlock", [], ["nowhere", "main"], ["b0"]]], []], run_secs, *rest]]
    untimed = [index, [trace, [UNTIMED_SEC], *rest]]
    lines = [slower, json.loads(records.read_text()), broken, untimed]
    records.write_text("".join(json.dumps(line) + "\n" for line in lines))
    [provenance] = spoilt.rglob(PROVENANCE)
    line = json.loads(provenance.read_text())
    other = {**line, "measured_on": {**line["measured_on"], "host_class": "other"}}
    provenance.write_text("".join(json.dumps(each) + "\n" for each in (line, line, line, other)))
    pruned = {record.line: reason for record, reason in find_prunable(spoilt)}
    assert pruned.keys() == {1, 3}  # line 4 is of another machine, and rebuilds
    assert "as fast" in pruned[1]
    assert "does not rebuild" in pruned[3]
    remove_records([record for record, _ in find_prunable(spoilt)])
    assert find_prunable(spoilt) == []
