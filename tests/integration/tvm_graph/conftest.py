"""Example models on disk, their tasks, and schedule directories with TVM's own first sketches."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

# Read once, when TVM is first imported: the machine's processors are not the target's cores.
os.environ.setdefault("TVM_NUM_THREADS", "2")

import pytest

from mallorn.core.targets import parse_target
from mallorn.core.values.graph_report import GraphReport, StoredRecipe
from mallorn.core.values.manifest import Manifest
from mallorn.workers.interfaces.model_compiler import Extraction, ModelTask, Tuned
from mallorn.workers.tvm.network.graph_recipes import recipe_for
from zoo import MODELS

TARGET = parse_target({"kind": "llvm", "num-cores": 2})


@dataclass
class Example:
    """An example model under a recipe."""

    name: str
    recipe_name: str
    folder: Path
    recipe: StoredRecipe = field(init=False)
    target: str = TARGET.text
    precision: str = "float32"

    def __post_init__(self) -> None:
        target = parse_target(json.loads(self.target))
        self.recipe = recipe_for(self.recipe_name, target, self.precision)

    @cached_property
    def path(self) -> str:
        path = self.folder / f"{self.name}.onnx"
        path.write_bytes(MODELS[self.name](0).SerializeToString())
        return str(path)

    @cached_property
    def extracted(self) -> Extraction:
        from mallorn.workers.tvm.network.extract_tasks import extract

        return extract(self.path, self.target, self.recipe, {})

    @property
    def graph(self) -> GraphReport:
        return self.extracted.graph

    @property
    def tasks(self) -> tuple[ModelTask, ...]:
        return self.extracted.tasks

    @cached_property
    def records(self) -> list[Tuned]:
        return [Tuned(task.tir, first_trace(task.tir, self.target), [1e-3]) for task in self.tasks]

    @cached_property
    def schedules(self) -> str:
        return self.write("schedules", self.records)

    def write(self, folder: str, records: list[Tuned]) -> str:
        """A schedule directory with these records and a manifest."""
        from mallorn.workers.tvm.records.tuning_database import write_database

        directory = self.folder / folder
        write_database(str(directory), self.target, records)
        target = json.loads(self.target)
        manifest = Manifest(target=target, recipe=self.recipe, input_ranges=self.graph.input_ranges)
        (directory / "manifest.json").write_text(manifest.model_dump_json())
        return str(directory)


def first_trace(tir: str, target: str) -> str:
    """The full trace of a valid candidate, from TVM's richest sketch that allows one."""
    from mallorn.workers.tvm.programs.parsed_program_cache import new_schedule, tune_context
    from mallorn.workers.tvm.space.sketches import to_plain_value

    context = tune_context(tir, target)
    for sketch in reversed(context.generate_design_space()):
        schedule = new_schedule(tir)
        sketch.trace.apply_to_schedule(schedule, remove_postproc=True)
        schedule.enter_postproc()
        if all(step.apply(schedule) for step in context.space_generator.postprocs):
            return json.dumps(to_plain_value(schedule.trace.as_json()))
    raise AssertionError("no sketch gave a valid candidate")


@pytest.fixture(scope="session")
def example(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Example]:
    """An example by name and recipe; what it computes is kept for the session."""
    made: dict[tuple[str, str], Example] = {}

    def get(name: str, recipe: str = "tuned") -> Example:
        key = (name, recipe)
        if key not in made:
            made[key] = Example(name, recipe, tmp_path_factory.mktemp(f"{name}-{recipe}"))
        return made[key]

    return get


@pytest.fixture
def mlp(example: Callable[..., Example]) -> Example:
    return example("mlp")


@pytest.fixture
def exported(mlp: Example, tmp_path: Path) -> Path:
    """Return a schedule directory, as `mallorn tune` writes it, to be spoilt at will."""
    return Path(shutil.copytree(mlp.schedules, tmp_path / "schedules"))
