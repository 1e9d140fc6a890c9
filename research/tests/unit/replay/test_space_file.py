"""A recording comes back from its file as it was."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.lab.replay_search import RecordedSpace
from mallorn.core.errors import InvalidRequest, NotFound
from mallorn_research.replay.recording_file import read_facts, read_tasks, write_tasks
from research.tests.unit.replay.made_up import made_up


def test_tasks_come_back_with_failures_sketches_and_facts(tmp_path: Path) -> None:
    tasks = [made_up(40), made_up(30, seed=1)]
    write_tasks(tmp_path / "new" / "s.parquet", tasks, {"hosts": [{"cores": 2}]})
    again = read_tasks(tmp_path / "new" / "s.parquet")
    met = [{t.candidate.sketch: None for t in task.trials} for task in tasks]
    assert [sorted(s.key for s in task.sketches) for task in again] == [sorted(names) for names in met]
    as_before = [replace(a, sketches=b.sketches) for a, b in zip(again, tasks, strict=True)]
    assert as_before == tasks
    assert all(set(a.sketches) <= set(b.sketches) for a, b in zip(again, tasks, strict=True))
    assert read_facts(tmp_path / "new" / "s.parquet") == {"hosts": [{"cores": 2}]}


def test_what_a_rule_suggests_comes_back_with_its_sketch(tmp_path: Path) -> None:
    task = made_up(40)
    told = tuple(
        replace(sketch, choices=tuple(replace(choice, suggested=(1, 2)) for choice in sketch.choices))
        for sketch in task.sketches
    )
    write_tasks(tmp_path / "s.parquet", [replace(task, sketches=told)], {})
    (again,) = read_tasks(tmp_path / "s.parquet")
    assert set(again.sketches) <= set(told)


def test_one_workload_in_two_contexts_is_two_tasks(tmp_path: Path) -> None:
    task = made_up(10)
    elsewhere = replace(task, context={"host_class": "another", "threads": 2})
    write_tasks(tmp_path / "s.parquet", [task, elsewhere], {})
    assert [found.context for found in read_tasks(tmp_path / "s.parquet")] == [
        task.context,
        elsewhere.context,
    ]


def test_a_file_that_is_missing_or_of_another_kind_is_refused_with_the_next_step(tmp_path: Path) -> None:
    with pytest.raises(NotFound) as missing:
        read_tasks(tmp_path / "none.parquet")
    assert "mallorn record" in missing.value.hint
    (tmp_path / "text.parquet").write_text("no")
    with pytest.raises(InvalidRequest, match="not a Parquet file"):
        read_tasks(tmp_path / "text.parquet")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")
    with pytest.raises(InvalidRequest, match="not a recording"):
        read_facts(tmp_path / "other.parquet")


def test_the_recording_in_the_repository_is_large_enough_and_of_one_host() -> None:
    path = Path("benchmarks/data/spaces.parquet")
    tasks = read_tasks(path)
    assert len(tasks) >= 16
    assert all(len({trial.candidate for trial in task.trials}) == len(task.trials) >= 400 for task in tasks)
    assert all(all(RecordedSpace(task).well_formed([t.candidate for t in task.trials])) for task in tasks)
    assert {"conv2d", "depthwise_conv2d", "matmul", "batch_matmul", "softmax", "layer_norm"} <= {
        t.op for t in tasks
    }
    assert len({str(task.context) for task in tasks}) == 1
    (host,) = read_facts(path)["hosts"]
    assert {"cpu_model", "cores", "threads", "tvm_version"} <= set(host)
    assert not {"hostname", "address"} & set(host)
