"""A model and its schedules into one library that takes the model's inputs alone."""

import tempfile
import time
from pathlib import Path

import tvm

from mallorn.core.values.graph import StoredRecipe
from workers.faces.graphs import Compiled, Shapes, Untuned
from workers.tvm.linker import link_shared
from workers.tvm.logs import read_database
from workers.tvm.model import load_network
from workers.tvm.passes import as_tvm_target, run_steps
from workers.tvm.pool import export_with_pool
from workers.tvm.recipes import recipe_of, step_json
from workers.tvm.templates import compiling as stock


def compile_model(
    model_path: str,
    schedules_dir: str | None,
    target: str,
    recipe: StoredRecipe,
    out_so: str,
    input_shapes: Shapes,
) -> Compiled:
    """Repeat the recipe exactly, apply the schedules, embed the re-laid weights and export `out_so`.

    Counts the tasks that have a schedule, because TVM passes over the others in silence. Raises InvalidModel,
    NotFound, InvalidRequest.
    """
    started_sec = time.monotonic()
    steps = recipe_of(recipe)
    tvm_target = as_tvm_target(target)
    network = load_network(model_path, input_shapes, tvm_target)
    mod, _ = run_steps(network.mod, steps.before, tvm_target)
    with tempfile.TemporaryDirectory() as scratch:
        problems = read_database(schedules_dir, target, scratch).problems if schedules_dir else []
        found, missing = stock.count_hits(mod, scratch, tvm_target)
        executable = stock.build(mod, [step_json(step) for step in steps.after], tvm_target, scratch)
        export_with_pool(executable, out_so, tvm_target)
    return Compiled(
        found=len(found),
        of=len(found) + len(missing),
        missing=missing,
        problems=problems,
        inputs=network.inputs,
        outputs=network.outputs,
        bytes=Path(out_so).stat().st_size,
        seconds=time.monotonic() - started_sec,
    )


def compile_default(model_path: str, target: str, out_so: str, input_shapes: Shapes) -> Untuned:
    """What TVM makes of the model by itself, without schedules: the base line and the numeric reference."""
    started_sec = time.monotonic()
    tvm_target = as_tvm_target(target)
    executable = tvm.compile(load_network(model_path, input_shapes, tvm_target).mod, tvm_target)
    executable.export_library(out_so, fcompile=link_shared)
    return Untuned(Path(out_so).stat().st_size, time.monotonic() - started_sec)
