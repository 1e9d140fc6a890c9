"""Folders of schedules: the same bytes for the same records, merged by importing, each context for itself."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import select

from db.migrate import upgrade
from db.repositories.measuring_contexts import Contexts
from db.session import Database
from db.tables import Context, Measurement
from mallorn.core.errors import Conflict, InvalidRequest, NotFound
from mallorn.core.targets import parse_target
from mallorn.core.values.manifest import RECORDS, WORKLOADS
from research.shared_schedules.export_best_records import export_schedules
from research.shared_schedules.folder_paths import PROVENANCE, TARGET
from research.shared_schedules.import_folders import import_schedules
from research.tuner_logs.read_lines import Problem
from research.tuner_logs.store_tuner_logs import find_logs, load_log
from tests.fixtures.stock_logs import product, write_log

ATTRS = {"kind": "llvm", "mcpu": "haswell", "num-cores": 2}
New = Callable[[], Database]


@pytest.fixture
def new(tmp_path: Path) -> Iterator[New]:
    """Empty datasets, one after the other."""
    made: list[Database] = []

    def one() -> Database:
        url = f"sqlite:///{tmp_path / f'{len(made)}.db'}"
        upgrade(url)
        made.append(Database(url))
        return made[-1]

    yield one
    for database in made:
        database.dispose()


def taught(database: Database, folder: Path, *sizes: int) -> Database:
    """A dataset that knows a log of a product of each of these sizes."""
    for size in sizes:
        write_log(folder / str(size), product(size), ATTRS, failed=0)
        [log] = find_logs(folder / str(size))
        load_log(database, log, _never)
    return database


def _never(problem: Problem) -> None:
    raise AssertionError(problem)


def shared(database: Database, root: Path) -> Path:
    """The directory of the one target that there is."""
    [written] = export_schedules(database, root)
    return written.directory


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def known(new: New, tmp_path: Path) -> Database:
    return taught(new(), tmp_path / "logs", 32)


def test_each_workload_has_its_fastest_record_beside_what_stock_reads(
    known: Database, tmp_path: Path
) -> None:
    directory = shared(known, tmp_path / "out")
    assert directory.name == f"llvm-haswell-2.{parse_target(ATTRS).key}"
    assert json.loads((directory / TARGET).read_text()) == ATTRS
    names = {PROVENANCE, RECORDS, WORKLOADS}
    assert set(content(directory)) == {TARGET, *(f"matmul/{name}" for name in names)}
    [record] = (directory / "matmul" / RECORDS).read_text().splitlines()
    assert json.loads(record)[1][1] == pytest.approx([1e-3, 1.1e-3])


def test_the_same_records_are_the_same_bytes_wherever_they_went(
    known: Database, new: New, tmp_path: Path
) -> None:
    first = shared(known, tmp_path / "first")
    there = new()
    loaded = import_schedules(there, tmp_path / "first", _never)
    assert (loaded.added, loaded.known, loaded.bad) == (1, 0, 0)
    assert content(shared(there, tmp_path / "second")) == content(first)
    assert shared(known, tmp_path / "first") == first
    again = import_schedules(there, tmp_path / "first", _never)
    assert (again.added, again.known) == (0, 1)


def test_two_folders_are_merged_by_importing_both(known: Database, new: New, tmp_path: Path) -> None:
    other = taught(new(), tmp_path / "others", 64)
    for number, each in enumerate((known, other)):
        shared(each, tmp_path / str(number))
    both = new()
    for number in (0, 1):
        import_schedules(both, tmp_path / str(number), _never)
    directory = shared(both, tmp_path / "both")
    assert len((directory / "matmul" / WORKLOADS).read_text().splitlines()) == 2


def test_contexts_are_kept_apart(known: Database, tmp_path: Path) -> None:
    with known.transaction() as session:
        row = session.scalars(select(Measurement).order_by(Measurement.latency_us)).first()
        assert row is not None
        context = session.scalars(select(Context)).one()
        slow = session.scalars(select(Measurement).order_by(Measurement.latency_us.desc())).first()
        assert slow is not None
        slow.context_id = Contexts(session).ensure(context.target_id, "other", "0.27.0", 2, {}).id
    directory = shared(known, tmp_path / "out")
    lines = [json.loads(line) for line in (directory / "matmul" / PROVENANCE).read_text().splitlines()]
    assert [line["measured_on"]["host_class"] for line in lines] == ["unknown", "other"]


def test_an_export_loses_nothing_that_others_have_put_there(
    known: Database, new: New, tmp_path: Path
) -> None:
    shared(known, tmp_path / "out")
    other = taught(new(), tmp_path / "others", 64)
    with pytest.raises(Conflict, match="has a record that this dataset has not"):
        shared(other, tmp_path / "out")


def test_nothing_that_came_in_is_promoted(known: Database, new: New, tmp_path: Path) -> None:
    shared(known, tmp_path / "out")
    there = new()
    import_schedules(there, tmp_path / "out", _never)
    with there.session() as session:
        assert {row.kind for row in session.scalars(select(Measurement))} == {"foreign"}


def test_a_torn_line_costs_its_own_record(known: Database, new: New, tmp_path: Path) -> None:
    directory = shared(known, tmp_path / "out")
    (directory / "matmul" / RECORDS).write_text("torn\n")
    problems: list[Problem] = []
    loaded = import_schedules(new(), tmp_path / "out", problems.append)
    assert (loaded.added, loaded.bad, [each.line for each in problems]) == (0, 1, [1])


def test_without_its_provenance_a_database_is_refused(known: Database, new: New, tmp_path: Path) -> None:
    directory = shared(known, tmp_path / "out")
    (directory / "matmul" / PROVENANCE).unlink()
    with pytest.raises(InvalidRequest, match="is missing"):
        import_schedules(new(), tmp_path / "out", _never)


def test_another_folder_is_no_folder_of_schedules(new: New, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no folder of schedules"):
        import_schedules(new(), tmp_path, _never)
