"""Compile a model and its schedules to one library that takes only the model's inputs.

The library has its own thread pool, for reasons given in thread_pool.c. CPU kernels are
compiled in parallel, and their machine code is cached in this process, since a job compiles
its model several times with schedules that differ in some tasks. TVM's own build would
compile all kernels again, on one core.
"""

import json
import logging
import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import tvm
from tvm import relax
from tvm.relax import vm_build

from mallorn.core.errors import HostFault
from mallorn.core.values.dynamic_shapes import Dynamic
from mallorn.core.values.graph_report import StoredRecipe, TensorSpec
from mallorn.core.values.manifest import RECORDS, Manifest
from mallorn.core.version import VERSION
from mallorn.graphc.export import compile_network as stock
from mallorn.graphc.export import export_checks
from mallorn.graphc.export.code_generation import compile_to_library
from mallorn.graphc.export.cross_linking import cross_compiler
from mallorn.graphc.export.embed_weights import weight_embedding_options
from mallorn.graphc.export.library_metadata import (
    describe_library,
    metadata_source,
    output_specs,
    required_cpu_features,
    target_architecture,
)
from mallorn.graphc.fold import share_equal_constants
from mallorn.graphc.ranges import dispatch_by_shape
from mallorn.workers.device.detect_host import available_cores
from mallorn.workers.device.model_kernel_times import PREPACKED
from mallorn.workers.host.host_memory import is_large
from mallorn.workers.host.linker import find_c_compiler, link_shared
from mallorn.workers.interfaces.model_compiler import Compiled, Shapes, Untuned
from mallorn.workers.tvm.cuda.compile_cuda import collect_device_code
from mallorn.workers.tvm.network.graph_recipes import check_recipe
from mallorn.workers.tvm.network.import_onnx_to_relax import import_at_point, load_network
from mallorn.workers.tvm.network.run_recipe_passes import as_tvm_target, run_steps
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


def export_kernels(mod: Any, library: str, target: Any, metadata: Mapping[str, object]) -> None:
    """Write a scheduled module's library for a CPU, like `relax.build` and
    `export_library`, but compile kernels in parallel and reuse cached ones."""
    with target:
        mod = relax.get_pipeline("default_build")(relax.transform.DeadCodeElimination()(mod))
    builder = relax.ExecBuilder()
    kernels = vm_build._filter_tir(vm_build._vmcodegen(builder, mod))
    constants = dict(mod.attrs.get("const_name_to_constant", {})) if mod.attrs else {}
    executable = vm_build._vmlink(builder, target, params=constants)
    functions = {} if kernels is None else kernels.functions
    texts = [f"{target}\n{tvm.ir.save_json(kernel)}" for kernel in functions.values()]
    keys = [sha256(text.encode()).hexdigest() for text in texts]
    kernels_by_key = dict(zip(keys, functions.items(), strict=True))  # name and kernel

    with tempfile.TemporaryDirectory(prefix="kernels-") as folder:

        def compile_kernel(key: str) -> bytes:
            path = Path(folder, f"new-{key}.o")  # a fused function's name may be too long
            compile_to_library(tvm.IRModule(dict([kernels_by_key[key]])), target).write_to_file(str(path))
            return path.read_bytes()

        new_keys = [key for key in kernels_by_key if key not in _cached]
        with ThreadPoolExecutor(available_cores()) as pool:  # TVM releases Python's global lock
            _cached.update(zip(new_keys, pool.map(compile_kernel, new_keys), strict=True))
        object_paths = [Path(folder, f"{key}.o") for key in kernels_by_key]
        for path in object_paths:
            path.write_bytes(_cached[path.stem])
        while len(_cached) > 1 and sum(map(len, _cached.values())) > MOST_BYTES:
            del _cached[next(iter(_cached))]  # the oldest
        export_with_pool(executable, library, target, metadata, [str(path) for path in object_paths])


def export_with_pool(
    executable: Any, library: str, target: Any, metadata: Mapping[str, object], kernels: Sequence[str] = ()
) -> None:
    """Write an executable's library with its metadata, and with our thread pool for a CPU;
    link it by `link_shared`. `kernels` are the paths of further object files to link.
    Raises HostFault if it is for another CPU and cannot be linked here."""
    embedded = weight_embedding_options(target_architecture(target)) if stock.is_cpu(target) else {}
    try:
        cross = tuple(cross_compiler(target))
    except export_checks.Refused as error:
        message, _, hint = str(error).partition("\n")
        raise HostFault(message, hint=hint.strip()) from None
    parts = {"metadata": compile_object(metadata_source(metadata), (), cross)}
    if stock.is_cpu(target):
        with stock.thread_pool_source() as source:
            options = tuple(stock.thread_pool_compiler_options(target))
            parts["pool"] = pool_object(source.read_text(), options, cross)

    def link(output: str, objects: Sequence[str], options: Sequence[str] | None = None, **_: Any) -> None:
        paths = [Path(output).with_suffix(f".{name}.o") for name, content in parts.items() if content]
        try:
            for path, content in zip(paths, filter(None, parts.values()), strict=True):
                path.write_bytes(content)
            link_shared(output, [*objects, *kernels, *map(str, paths)], options, command=cross)
        finally:
            for path in paths:
                path.unlink(missing_ok=True)

    link.output_format = "so"  # type: ignore[attr-defined]
    executable.export_library(library, fcompile=link, **embedded)


def compile_object(source: str, options: tuple[str, ...], cross: tuple[str, ...]) -> bytes:
    """Compile a C source to an object file and return its bytes; none if that fails. The
    compiler is the command `cross` or, if that is empty, this machine's."""
    own_compiler = find_c_compiler()
    command = cross or (own_compiler and (own_compiler,))
    if not command:
        log.warning(NO_COMPILER)
        return b""
    with tempfile.TemporaryDirectory(prefix="mallorn-object-") as folder:
        (path := Path(folder, "source.c")).write_text(source)
        object_path = Path(folder, "source.o")
        result = subprocess.run(
            [*command, *options, "-fPIC", "-c", str(path), "-o", str(object_path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if result.returncode != 0:
            log.warning("%s does not compile a part of a library, which lacks it: %s", command, result.stdout)
            return b""
        return object_path.read_bytes()


pool_object = lru_cache(maxsize=8)(compile_object)


def compile_model(
    model_path: str,
    schedules_dir: str | None,
    target: str,
    recipe: StoredRecipe,
    out_so: str,
    input_shapes: Shapes,
    dynamic: Dynamic | None = None,
    manifest: Manifest | None = None,
) -> Compiled:
    started_sec = time.monotonic()
    steps, tvm_target = check_recipe(recipe), as_tvm_target(target)
    steps_after = steps.model_dump()["after"]
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
            {"model": Path(model_path), "schedules": Path(scratch, RECORDS)},
        )
        scheduled_mod = stock.apply_schedules(mods, ranges, steps_after, tvm_target, scratch)
        if stock.is_cpu(tvm_target):
            export_kernels(scheduled_mod, out_so, tvm_target, metadata)
        else:
            with collect_device_code(tvm_target):
                executable = stock.build_scheduled(scheduled_mod, tvm_target)
            export_with_pool(executable, out_so, tvm_target, metadata)
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
        tvm_target, steps = as_tvm_target(target), check_recipe(recipe).before
        constants = share_equal_constants.Constants()
        mods: dict[str, tvm.IRModule] = {}
        points: list[dict[str, int]] = [{}] if dynamic is None else dynamic.points
        for point in points:
            if dynamic is None:
                label, network = "", load_network(model_path, input_shapes, tvm_target)
            else:
                label = dispatch_by_shape.point_suffix(point)
                network, _ = import_at_point(model_path, dynamic, point, tvm_target)
            inputs, outputs = network.inputs, network.outputs
            mod, _ = run_steps(network.mod, steps, tvm_target)
            mods[label] = constants.share(mod)
        if is_large(os.path.getsize(model_path)):  # the re-laid weights need memory, too
            return mods, inputs, outputs
        _latest_networks[key] = mods, inputs, outputs
    mods, inputs, outputs = _latest_networks[key]
    return dict(mods), inputs, outputs


def compile_default(model_path: str, target: str, out_so: str, input_shapes: Shapes) -> Untuned:
    started_sec = time.monotonic()
    tvm_target = as_tvm_target(target)
    with collect_device_code(tvm_target):
        executable = tvm.compile(load_network(model_path, input_shapes, tvm_target).mod, tvm_target)
    embedded = weight_embedding_options(target_architecture(tvm_target)) if stock.is_cpu(tvm_target) else {}
    executable.export_library(out_so, fcompile=link_shared, **embedded)
    return Untuned(Path(out_so).stat().st_size, time.monotonic() - started_sec)
