"""What is exported comes in elsewhere as it was, once, and never as anything that could be promoted."""

import pyarrow.parquet as pq
import pytest

from mallorn.core.errors import Conflict, InvalidRequest, NotFound
from mallorn.core.outcomes import Outcome
from mallorn.core.states import MeasurementKind
from mallorn.db.dataset.import_dataset import import_dataset
from mallorn.db.measurement_codec import unpack_decisions, unpack_times
from mallorn.db.repositories.trials import Trials
from mallorn.db.repositories.workloads import Sketches, tir_of
from mallorn.db.session import Database
from mallorn.db.tables import Context, Measurement
from tests.fixtures.database import BOTH
from tests.fixtures.filled_dataset import TILED, Filled, stored
from tests.fixtures.rows import MODEL
from tests.fixtures.stored import workload_named

COPIED = (
    "slot",
    "outcome",
    "latency_us",
    "run_us",
    "error",
    "origin",
    "predicted",
    "decisions",
    "created_at",
)


def values(row: Measurement) -> tuple[object, ...]:
    return tuple(getattr(row, name) for name in (*COPIED, "created_at"))


def test_rows_come_in_elsewhere_as_they_were(filled: Filled, elsewhere: Database, tmp_path) -> None:
    filled.write(lambda session: filled.finish(session, [filled.ok(0, 4.0)]))
    told = filled.exported(tmp_path / "out")
    assert (told["measurements"], told["workloads"], told["sketches"]) == (6, 2, 1)
    result = import_dataset(elsewhere, tmp_path / "out")
    assert (result.added, result.known, dict(result.skipped)) == (6, 0, {})
    there = stored(elsewhere)
    assert [values(row) for row in there] == [values(row) for row in stored(filled.database)]
    assert {(row.job_id, row.round_id) for row in there} == {(None, None)}
    assert [row.context_id is None for row in there] == [False, False, False, True, False, False]


def test_candidates_can_be_rebuilt_where_they_came_in(filled: Filled, elsewhere: Database, tmp_path) -> None:
    filled.exported(tmp_path / "out")
    import_dataset(elsewhere, tmp_path / "out")
    with elsewhere.session() as session:
        workload = workload_named(session, "w0")
        assert Sketches(session).by_key(["tiled"]) == {"tiled": TILED}
        assert workload is not None
        assert (tir_of(workload), workload.op, workload.args) == ("{tir}", "matmul", {"args": []})
        context = session.query(Context).one()
        assert (context.host_class, context.tvm_version, context.threads) == ("host", "0.27.0", 2)


def test_what_came_in_teaches_and_is_never_the_best(filled: Filled, elsewhere: Database, tmp_path) -> None:
    filled.write(lambda session: filled.finish(session, [filled.ok(0, 4.0)]))
    filled.exported(tmp_path / "out")
    import_dataset(elsewhere, tmp_path / "out")
    with elsewhere.session() as session:
        workload = workload_named(session, "w0")
        assert workload is not None
        target_id = stored(elsewhere)[0].target_id
        history = Trials(session).history(workload.id, target_id)
        assert [(trial.outcome, trial.latency_us) for trial in history] == [
            (Outcome.OK, 5.0), (Outcome.BUILD_ERROR, None), (Outcome.OK, 3.0)
        ]  # fmt: skip
        assert Trials(session).best(workload.id, target_id) == []


def test_a_second_import_adds_nothing(filled: Filled, elsewhere: Database, tmp_path) -> None:
    filled.exported(tmp_path / "out")
    import_dataset(elsewhere, tmp_path / "out")
    again = import_dataset(elsewhere, tmp_path / "out")
    assert (again.added, again.known) == (0, 5)
    filled.closed_round(filled.ok(0, 2.0))
    filled.exported(tmp_path / "more")
    more = import_dataset(elsewhere, tmp_path / "more")
    assert (more.added, more.known) == (1, 5)


@BOTH
def test_rows_that_come_back_are_known(filled: Filled, elsewhere: Database, tmp_path) -> None:
    filled.exported(tmp_path / "out")
    assert import_dataset(filled.database, tmp_path / "out").added == 0
    import_dataset(elsewhere, tmp_path / "out")
    Filled(elsewhere).exported(tmp_path / "back")  # rows of its own beside ours
    back = import_dataset(filled.database, tmp_path / "back")
    assert (back.added, back.known) == (5, 5)
    kinds = [row.kind for row in stored(filled.database)]
    assert kinds == [MeasurementKind.TRIAL] * 5 + [MeasurementKind.FOREIGN] * 5


@BOTH
def test_a_copy_that_counted_on_is_not_taken_for_the_original(filled: Filled, tmp_path) -> None:
    filled.exported(tmp_path / "before")
    with filled.database.transaction() as session:
        session.get_one(Measurement, 1).created_at += 1
    result = import_dataset(filled.database, tmp_path / "before")
    assert (result.added, result.known) == (1, 4)


SELECTED = {"op": ("matmul", 5), "target": (None, 5), "model": (MODEL, 5)}


@BOTH
@pytest.mark.parametrize("name", SELECTED)
def test_a_selection_must_exist(name: str, filled: Filled, tmp_path) -> None:
    value, count = SELECTED[name]
    value = value or '{"kind":"llvm","num-cores":2}'
    assert filled.exported(tmp_path / "out", **{name: value})["measurements"] == count
    with pytest.raises(NotFound, match="the dataset has no rows of conv9d"):
        filled.exported(tmp_path / "none", **{name: "conv9d"})
    assert not (tmp_path / "none").exists()


@BOTH
def test_dates_select_from_the_first_up_to_the_second(filled: Filled, tmp_path) -> None:
    dates = sorted(row.created_at for row in stored(filled.database))
    some = filled.exported(tmp_path / "some", since=dates[1], until=dates[-1])
    assert some["measurements"] == sum(dates[1] <= date < dates[-1] for date in dates)
    assert filled.exported(tmp_path / "none", until=1.0)["measurements"] == 0
    assert pq.ParquetFile(tmp_path / "none" / "measurements.parquet").metadata.num_rows == 0


def test_row_groups_stay_small_however_many_rows_there_are(filled: Filled, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("mallorn.db.dataset.snapshots.GROUP_ROWS", 3)
    monkeypatch.setattr("mallorn.db.dataset.snapshots.PAGE_ROWS", 2)
    filled.exported(tmp_path / "out")
    file = pq.ParquetFile(tmp_path / "out" / "measurements.parquet")
    assert [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)] == [4, 1]
    assert file.read().column("row").to_pylist() == [1, 2, 3, 4, 5]


def test_a_directory_that_holds_something_is_left_alone(filled: Filled, tmp_path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    with pytest.raises(Conflict, match="exists"):
        filled.exported(tmp_path / "full")
    with pytest.raises(InvalidRequest, match="cannot write"):
        filled.exported(tmp_path / "full" / "mine" / "below")
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["mine"]


def test_packed_values_are_numbers_in_the_file(filled: Filled, tmp_path) -> None:
    filled.exported(tmp_path / "out")
    rows = pq.read_table(tmp_path / "out" / "measurements.parquet").to_pylist()
    ours = stored(filled.database)
    assert (rows[0]["workload"], rows[0]["op"], rows[0]["model"]) == ("w0", "matmul", MODEL)
    assert [tuple(row["decisions"]) for row in rows] == [unpack_decisions(row.decisions) for row in ours]
    assert [tuple(row["run_us"]) for row in rows] == [unpack_times(row.run_us or b"") for row in ours]
