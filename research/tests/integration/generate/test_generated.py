"""Made-up networks are imported as the tasks that were drawn."""

from fnmatch import fnmatchcase
from pathlib import Path

from mallorn.core.targets import parse_target
from mallorn.workers.tvm.network.extract_tasks import extract
from mallorn.workers.tvm.network.graph_recipes import recipe_for
from mallorn_research.generate.task_rule_file import OURS, Drawn, draw, read_rules
from mallorn_research.generate.tasks_as_onnx import DIMENSIONS, network, only_patterns

TARGET = parse_target({"kind": "llvm", "num-cores": 2})


def test_every_drawn_task_is_one_of_the_importer_s_that_the_job_asks_for(tmp_path: Path) -> None:
    drawn: list[Drawn] = draw(read_rules(OURS, DIMENSIONS), 6, seed=0)
    file = tmp_path / "generated.onnx"
    file.write_bytes(network(drawn).SerializeToString())
    tasks = extract(str(file), TARGET.text, recipe_for("tuned", TARGET), {}).tasks
    meant = [
        task for task in tasks if any(fnmatchcase(task.name, pattern) for pattern in only_patterns(drawn))
    ]
    ops = sorted(task.op for task in meant)
    assert ops == ["batch_matmul", "conv2d", "conv2d", "depthwise_conv2d", "matmul", "softmax"]
    dense = next(dict(task.shape) for task in drawn if task.kind == "dense")
    [found] = [task.extents for task in meant if task.op == "matmul"]
    assert found == (dense["rows"], dense["columns"], dense["inner"])
