"""Compile a model and its schedules to one library that takes only the model's inputs.

`mallorn.graphc.export` compiles, here as in an exported directory. The machine code of kernels
is cached in this process, since a job compiles its model several times with schedules that
differ in some tasks.
"""

import json
import logging
import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import tvm

from mallorn.core.errors import HostFault
from mallorn.core.targets import NATIVE, parse_target
from mallorn.core.values.dynamic_shapes import Dynamic
from mallorn.core.values.graph_report import StoredRecipe, TensorSpec
from mallorn.core.values.manifest import RECORDS, Manifest
from mallorn.core.version import VERSION
from mallorn.graphc.export import compile_network as stock
from mallorn.graphc.export import export_checks
from mallorn.graphc.export.build_library import Link, build_library, cross_compiler, is_cpu
from mallorn.graphc.export.embed_weights import weight_embedding_options
from mallorn.graphc.export.library_metadata import (
    describe_library,
    output_specs,
    required_cpu_features,
    target_architecture,
)
from mallorn.workers.device.detect_host import available_cores
from mallorn.workers.device.model_kernel_times import PREPACKED
from mallorn.workers.host.host_memory import is_large
from mallorn.workers.host.linker import find_c_compiler, link_shared, linker_for
from mallorn.workers.interfaces.model_compiler import Compiled, Shapes, Untuned
from mallorn.workers.tvm.network.graph_recipes import recipe_steps
from mallorn.workers.tvm.network.import_onnx_to_relax import import_at_point, load_network
from mallorn.workers.tvm.network.run_recipe_passes import as_tvm_target, run_steps
from mallorn.workers.tvm.programs.compiler_kind import compiler_kind
from mallorn.workers.tvm.records.tuning_database import read_database

NO_COMPILER: Final = (
    "no C compiler: libraries use TVM's threads, which lose much time beside other programs, and have no "
    "metadata for mallorn_runtime (apt-get install gcc)"
)
log = logging.getLogger(__name__)
PACKAGES: Final = ("apache-tvm", "apache-tvm-ffi")
MOST_BYTES: Final = 256 << 20  # of cached objects
_cached: dict[str, bytes] = {}  # object files by the hash of target and kernel
# Modules by the label of their tuned sizes, then the model's inputs and its outputs.
Networks = tuple[dict[str, tvm.IRModule], list[TensorSpec], list[TensorSpec]]
_latest_networks: dict[tuple[str, int, str, str], Networks] = {}  # at most one


def host_linker(target: Any, instruction_set: str = NATIVE) -> Link:
    """Return `link_shared` for the target's CPU, which also compiles C sources, if it can.
    Raises HostFault if this host has no C compiler for a target with another CPU."""
    try:
        cross = tuple(cross_compiler(target))
    except export_checks.Refused as error:
        message, _, hint = str(error).partition("\n")
        raise HostFault(message, hint=hint.strip()) from None

    def link(output: str, objects: Sequence[str], options: Sequence[str] = (), **_: Any) -> None:
        linked = [path for path in objects if not path.endswith(".c")]
        for source in (Path(path) for path in objects if path.endswith(".c")):
            if content := compile_object(source.read_text(), tuple(options), cross):
                source.with_suffix(".o").write_bytes(content)
                linked.append(str(source.with_suffix(".o")))
        # zig links its own compiler runtime, which C code for another CPU may call.
        link_shared(output, linked, instruction_set=instruction_set, command=cross)

    link.output_format = "so"  # type: ignore[attr-defined]
    return link


@lru_cache(maxsize=8)
def compile_object(source: str, options: tuple[str, ...], cross: tuple[str, ...]) -> bytes:
    """Compile a C source to an object file and return its bytes; none if that fails. The
    compiler is the command `cross` or, if that is empty, this machine's."""
    command = cross or tuple(filter(None, [find_c_compiler()]))
    if not command:
        log.warning(NO_COMPILER)
        return b""
    with tempfile.TemporaryDirectory(prefix="mallorn-object-") as folder:
        object_path = Path(folder, "source.o")
        words = [*command, *options, "-fPIC", "-c", "-x", "c", "-", "-o", str(object_path)]
        result = subprocess.run(words, input=source, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            log.warning("%s does not compile a part of a library, which lacks it: %s", command, result.stderr)
            return b""
        return object_path.read_bytes()


def compile_model(
    model_path: str,
    schedules_dir: str | None,
    target: str,
    recipe: StoredRecipe,
    out_so: str,
    input_shapes: Shapes,
    dynamic: Dynamic | None = None,
    manifest: Manifest | None = None,
    source_path: str | None = None,
) -> Compiled:
    """Compile a model, or a region of the ONNX file `source_path`, with the schedules of a directory."""
    started_sec = time.monotonic()
    steps, tvm_target = recipe_steps(recipe), as_tvm_target(target)
    mods, inputs, outputs = import_networks(model_path, target, recipe, input_shapes, dynamic)
    with tempfile.TemporaryDirectory() as scratch:
        problems = read_database(schedules_dir, target, scratch).problems if schedules_dir else []
        hits, misses = stock.partition_tasks_by_schedule(mods, scratch, tvm_target)
        ranges = None if dynamic is None else dynamic.model_dump(mode="json")
        described: Any = manifest.model_dump(mode="json") if manifest else {}
        described["versions"] = {"mallorn": VERSION} | {name: version(name) for name in PACKAGES}
        described |= {"outputs": [spec.model_dump() for spec in outputs], "dynamic": ranges}
        metadata = describe_library(
            tvm_target,
            described,
            [spec.model_dump() for spec in inputs],
            output_specs(stock.read_model(model_path) if dynamic else None, described),
            {"model": Path(model_path), "schedules": Path(scratch, RECORDS)}
            | ({"source": Path(source_path)} if source_path else {}),
        )
        scheduled_mod = stock.apply_schedules(mods, ranges, steps["after"], tvm_target, scratch)
        link, cores = host_linker(tvm_target, parse_target(target).toolchain), available_cores()
        with compiler_kind(target).compiler(tvm_target):
            build_library(scheduled_mod, out_so, tvm_target, metadata, _cached, link, cores)
        while len(_cached) > 1 and sum(map(len, _cached.values())) > MOST_BYTES:
            del _cached[next(iter(_cached))]  # the oldest
    return Compiled(
        found=len(hits),
        of=len(hits) + len(misses),
        missing=misses,
        problems=problems,
        inputs=inputs,
        outputs=outputs,
        applied=list_applied_tasks(scheduled_mod, hits),
        bytes=Path(out_so).stat().st_size,
        seconds=time.monotonic() - started_sec,
        cpu_features=required_cpu_features(tvm_target),
    )


def list_applied_tasks(mod: Any, tasks: Sequence[str]) -> list[str]:
    """Return the tasks whose functions carry the mark of `MetaScheduleApplyDatabase`."""
    scheduled_names = {
        var.name_hint.replace(PREPACKED, "")
        for var, function in mod.functions_items()
        if isinstance(function, tvm.tirx.PrimFunc) and function.attrs.get("tirx.is_scheduled", False)
    }
    return [task for task in tasks if task in scheduled_names]


def import_ahead(
    model_path: str, target: str, recipe: StoredRecipe, input_shapes: Shapes, dynamic: Dynamic | None
) -> None:
    if not is_large(os.path.getsize(model_path)):
        import_networks(model_path, target, recipe, input_shapes, dynamic)


def import_networks(
    model_path: str, target: str, recipe: StoredRecipe, input_shapes: Shapes, dynamic: Dynamic | None
) -> Networks:
    """Import a model, at each size to tune if it has free dimensions, and run the recipe's
    passes that precede tuning. The latest result is cached, unless the model is large."""
    options = json.dumps([recipe.model_dump(mode="json"), input_shapes, dynamic and dynamic.model_dump()])
    key = model_path, os.stat(model_path).st_mtime_ns, target, options
    if key not in _latest_networks:
        _latest_networks.clear()
        tvm_target, ends = as_tvm_target(target), list[tuple[list[TensorSpec], list[TensorSpec]]]()

        def read(point: dict[str, int] | None) -> Any:
            if dynamic is None or point is None:
                network = load_network(model_path, input_shapes, tvm_target)
            else:
                network, _ = import_at_point(model_path, dynamic, point, tvm_target)
            ends.append((network.inputs, network.outputs))
            return network.mod

        ranges, early_steps = dynamic and dynamic.model_dump(), recipe_steps(recipe)["before"]
        mods = stock.import_models(read, ranges, early_steps, tvm_target, run_steps)
        if is_large(os.path.getsize(model_path)):  # the re-laid weights need memory, too
            return mods, *ends[-1]
        _latest_networks[key] = mods, *ends[-1]
    mods, inputs, outputs = _latest_networks[key]
    return dict(mods), inputs, outputs


def compile_default(model_path: str, target: str, out_so: str, input_shapes: Shapes) -> Untuned:
    started_sec = time.monotonic()
    tvm_target = as_tvm_target(target)
    with compiler_kind(target).compiler(tvm_target):
        executable = tvm.compile(load_network(model_path, input_shapes, tvm_target).mod, tvm_target)
    embedded = weight_embedding_options(target_architecture(tvm_target)) if is_cpu(tvm_target) else {}
    link = linker_for(parse_target(target).toolchain)
    executable.export_library(out_so, fcompile=link, **embedded)
    return Untuned(Path(out_so).stat().st_size, time.monotonic() - started_sec)
