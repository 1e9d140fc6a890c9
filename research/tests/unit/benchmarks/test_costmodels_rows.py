"""All models are compared on the same candidates in the same folds, whatever they read."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.costmodels.arms import CONTROL, able
from benchmarks.costmodels.networks import FILE, read_networks, write_networks
from benchmarks.costmodels.rows import Bench, load, usable
from benchmarks.costmodels.synthetic import SHAPES, made_up
from benchmarks.costmodels.view_file import ViewFile
from mallorn.core.errors import InvalidRequest, NotFound
from mallorn.costmodels.decision_columns import WIDTH
from mallorn.costmodels.views import STATEMENTS
from research.tests.unit.pretraining.made_up import training_data


def stored(every: int = 1) -> Mapping[str, ViewFile]:
    """Statements of every so many-th candidate, which say its number."""
    tasks = training_data().tasks
    keys = [(task.workload, task.target, each.key) for task in tasks for each in task.candidates]
    rows = np.zeros((len(keys), STATEMENTS.width), dtype=np.float32)
    rows[:, 0], rows[:, 1] = 1, np.arange(len(keys))
    places = {key: at for at, key in enumerate(keys) if at % every == 0}
    return {STATEMENTS.name: ViewFile(STATEMENTS, places, rows)}


def test_made_up_measurements_are_a_task_a_shape() -> None:
    rows = Bench(made_up(20)).rows("decisions")
    assert rows.features.shape == (20 * len(SHAPES), WIDTH)
    assert len(np.unique(rows.groups)) == len(rows.workloads) == len(SHAPES)
    assert rows.labels.max() == 0


def test_what_one_view_lacks_is_left_out_of_all() -> None:
    views = stored(every=3)
    bench = Bench(replace(training_data(), tasks=usable(training_data().tasks, views, 5)), views)
    assert bench.training_data.rows == 80
    for view in ("decisions", "primitives", "statements"):
        assert len(bench.rows(view)) == 80
        np.testing.assert_array_equal(bench.rows(view).labels, bench.plain.labels)
    assert set(bench.rows("statements").features[:, 1] % 3) == {0.0}


def test_tasks_with_a_handful_of_valid_rows_are_left_out() -> None:
    few = [task.take(range(4 + 10 * at)) for at, task in enumerate(training_data().tasks)]
    valid = [sum(us is not None for us in task.latencies_us) for task in few]
    kept = usable(few, {}, valid[2])
    assert [task.workload for task in kept] == [task.workload for task in few[2:]]
    with pytest.raises(InvalidRequest, match="none of 4 tasks has 1000 valid rows") as caught:
        usable(few, {}, 1000)
    assert caught.value.hint


def test_networks_of_drawn_tasks_teach_and_are_not_held_out() -> None:
    known = training_data()
    drawn = {"generated-0-0": {known.tasks[3].workload: 1}}
    one, two = known.networks.values()
    bench = Bench(replace(known, networks={"mlp": one, "bert": two} | drawn))
    assert [fold.name for fold in bench.folds("by-network", 0)] == ["bert", "mlp"]
    assert bench.splits()[-1] == "by-network"
    alone = Bench(replace(known, networks={"mlp": one} | drawn))
    assert alone.splits() == ("within-task", "by-task")


def test_rows_are_known_by_what_they_hold() -> None:
    assert Bench(made_up(20)).fingerprint == Bench(made_up(20)).fingerprint != Bench(made_up(21)).fingerprint


def test_programs_that_fill_their_table_are_counted() -> None:
    assert Bench(training_data()).full_programs is None
    views = stored()
    views[STATEMENTS.name].rows[:60, -STATEMENTS.shape[1]] = 1
    assert Bench(training_data(), views).full_programs == pytest.approx(60 / 240)


def test_models_whose_view_is_not_stored_are_left_out_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert [arm.name for arm in able(["static", "xgboost", CONTROL], ())] == ["xgboost", CONTROL]
    assert "static is left out" in capsys.readouterr().out
    assert [arm.name for arm in able(["static", "statements"], {"statements"})] == ["statements"]
    with pytest.raises(InvalidRequest, match="is not stored beside") as caught:
        Bench(training_data()).rows("code")
    assert "--view code" in caught.value.hint


def test_what_is_not_there_or_no_data_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no"):
        load(str(tmp_path / "gone"))
    (tmp_path / "torn.parquet").write_bytes(b"PAR1")
    with pytest.raises(InvalidRequest, match="not a Parquet file"):
        load(str(tmp_path / "torn.parquet"))


def test_networks_that_are_none_are_refused(tmp_path: Path) -> None:
    assert read_networks(tmp_path) is None
    write_networks(tmp_path, {"mlp.onnx": {"w0": 2}})
    assert read_networks(tmp_path) == {"mlp": {"w0": 2}}
    for text in ("{", "[1]", '{"mlp": 3}', '{"mlp": {"w0": "often"}}'):
        (tmp_path / FILE).write_text(text)
        with pytest.raises(InvalidRequest, match="does not tell networks") as caught:
            read_networks(tmp_path)
        assert caught.value.hint
