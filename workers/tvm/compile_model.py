"""Compile a model and its schedules to one library that takes only the model's inputs."""

import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import tvm

from graphc.export import compile_network as stock
from graphc.export.embed_weights import embedding
from graphc.fold import share_equal_constants
from graphc.ranges import dispatch_by_shape
from mallorn.core.values.dynamic_shapes import Dynamic
from mallorn.core.values.graph_report import StoredRecipe, TensorSpec
from workers.host.host_memory import is_large
from workers.interfaces.model_compiler import Compiled, Shapes, Untuned
from workers.tvm.cuda_toolchain import collecting
from workers.tvm.export_model import export_kernels, export_with_pool
from workers.tvm.graph_recipes import recipe_of, step_json
from workers.tvm.import_onnx_to_relax import load_network, load_point
from workers.tvm.linker import link_shared
from workers.tvm.run_recipe_passes import as_tvm_target, run_steps
from workers.tvm.tuning_database import read_database

# Modules by the label of their point, then the model's inputs and its outputs.
Networks = tuple[dict[str, object], list[TensorSpec], list[TensorSpec]]
_latest: dict[tuple[str, int, str, str], Networks] = {}


def compile_model(
    model_path: str,
    schedules_dir: str | None,
    target: str,
    recipe: StoredRecipe,
    out_so: str,
    input_shapes: Shapes,
    dynamic: Dynamic | None = None,
) -> Compiled:
    """Repeat the recipe exactly, apply the schedules, embed the re-laid weights and export `out_so`.

    A range is compiled at every point, into one library whose `main` takes any size in it.
    Tasks with a schedule are counted, because TVM ignores the others silently. Raises
    InvalidModel, NotFound, InvalidRequest; for CUDA KernelRefused and, if no compiler is
    installed, HostFault.
    """
    started_sec = time.monotonic()
    steps, tvm_target = recipe_of(recipe), as_tvm_target(target)
    after = [step_json(step) for step in steps.after]
    mods, inputs, outputs = networks(model_path, target, recipe, input_shapes, dynamic)
    with tempfile.TemporaryDirectory() as scratch:
        problems = read_database(schedules_dir, target, scratch).problems if schedules_dir else []
        hits, missing = stock.count_hits(mods, scratch, tvm_target)
        ranges = None if dynamic is None else dynamic.model_dump(mode="json")
        if stock.is_cpu(tvm_target):
            export_kernels(stock.scheduled(mods, ranges, after, tvm_target, scratch), out_so, tvm_target)
        else:
            with collecting(tvm_target):
                built = stock.build(mods, ranges, after, tvm_target, scratch)
            export_with_pool(built, out_so, tvm_target)
    return Compiled(
        found=len(hits),
        of=len(hits) + len(missing),
        missing=missing,
        problems=problems,
        inputs=inputs,
        outputs=outputs,
        bytes=Path(out_so).stat().st_size,
        seconds=time.monotonic() - started_sec,
    )


def read_ahead(
    model_path: str, target: str, recipe: StoredRecipe, input_shapes: Shapes, dynamic: Dynamic | None
) -> None:
    """Import a model in advance, unless it is too large to keep. Raises InvalidModel."""
    if not is_large(os.path.getsize(model_path)):
        networks(model_path, target, recipe, input_shapes, dynamic)


def networks(
    model_path: str, target: str, recipe: StoredRecipe, input_shapes: Shapes, dynamic: Dynamic | None
) -> Networks:
    """Return the model after the recipe's first half; the last call's result is cached."""
    options = json.dumps([recipe.model_dump(mode="json"), input_shapes, dynamic and dynamic.model_dump()])
    key = model_path, os.stat(model_path).st_mtime_ns, target, options
    if key not in _latest:
        _latest.clear()
        networks = _read(model_path, as_tvm_target(target), recipe, input_shapes, dynamic)
        if is_large(os.path.getsize(model_path)):  # the re-laid weights need memory, too
            return networks
        _latest[key] = networks
    mods, inputs, outputs = _latest[key]
    return dict(mods), inputs, outputs


def _read(
    model_path: str, target: Any, recipe: StoredRecipe, input_shapes: Shapes, dynamic: Dynamic | None
) -> Networks:
    mods: dict[str, object] = {}
    steps, constants = recipe_of(recipe).before, share_equal_constants.Constants()
    points: list[dict[str, int]] = [{}] if dynamic is None else dynamic.points
    for point in points:
        if dynamic is None:
            label, network = "", load_network(model_path, input_shapes, target)
        else:
            label = dispatch_by_shape.point_suffix(point)
            network, _ = load_point(model_path, dynamic, point, target)
        inputs, outputs = network.inputs, network.outputs
        mod, _ = run_steps(network.mod, steps, target)
        mods[label] = constants.share(mod)
    return mods, inputs, outputs


def compile_default(model_path: str, target: str, out_so: str, input_shapes: Shapes) -> Untuned:
    """Compile the model as stock TVM does, as the baseline and the numeric reference."""
    started_sec = time.monotonic()
    tvm_target = as_tvm_target(target)
    with collecting(tvm_target):
        executable = tvm.compile(load_network(model_path, input_shapes, tvm_target).mod, tvm_target)
    embedded = embedding() if stock.is_cpu(tvm_target) else {}
    executable.export_library(out_so, fcompile=link_shared, **embedded)
    return Untuned(Path(out_so).stat().st_size, time.monotonic() - started_sec)
