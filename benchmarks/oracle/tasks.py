"""Chooses the tasks to measure: of each model the heaviest of every kind of operator.

python -m benchmarks.oracle.tasks MODEL.onnx ... -o TASKS.json [--each 1] [--share 0.02] [--target TEXT]
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mallorn.core.targets import Target
from mallorn.workers.interfaces.model_compiler import ModelCompiler, ModelTask
from mallorn.workers.interfaces.tensor_arguments import unpack_arguments
from mallorn.workers.tvm.network.graph_recipes import recipe_for

LEAST_FLOPS = 1e5


def main() -> None:
    """Write the chosen tasks of all models to one file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--target", default='{"kind":"llvm","mcpu":"x86-64-v3","num-cores":2}')
    parser.add_argument("--each", type=int, default=1, help="tasks of one kind of operator in a model")
    parser.add_argument("--share", type=float, default=0.02, help="least share of the model's operations")
    args = parser.parse_args()
    found = [
        row for model in args.models for row in chosen(model, Target(args.target), args.each, args.share)
    ]
    args.out.write_text(json.dumps(found))
    for row in found:
        print(row["model"], row["task"]["op"], row["task"]["name"], f"{row['task']['flops'] / 1e6:.1f} M")


def chosen(model: Path, target: Target, each: int, share: float) -> Iterator[dict[str, Any]]:
    """The heaviest tasks of each kind that are worth so much of the model."""
    with ModelCompiler() as graphs:
        tasks = graphs.extract(str(model), target.text, recipe_for("tuned", target), {}).tasks
    total = sum(task.flops * task.weight for task in tasks)
    kinds: Counter[str] = Counter()
    for task in sorted(tasks, key=lambda task: -task.flops * task.weight):
        kinds[task.op] += 1
        if kinds[task.op] <= each and task.flops * task.weight >= share * total and task.flops > LEAST_FLOPS:
            yield {"model": model.stem, "task": asdict(task)}


def read_tasks(path: Path) -> list[tuple[str, ModelTask]]:
    """What `main` wrote: the model's name and the task."""
    rows = json.loads(path.read_text())
    return [(row["model"], task_of(row["task"])) for row in rows]


def task_of(row: dict[str, Any]) -> ModelTask:
    """A task as `main` wrote it."""
    known = {"args": unpack_arguments(row["args"]), "extents": tuple(row["extents"])}
    return ModelTask(**(row | known))


if __name__ == "__main__":
    main()
