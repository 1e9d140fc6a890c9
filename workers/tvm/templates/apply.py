"""Compile an ONNX model with the schedules beside this file, using stock TVM alone.

python apply.py MODEL.onnx [-o model.so] [--check]     (--check compares with onnxruntime)
"""
# ruff: noqa: E402

import argparse
import importlib
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    # TVM takes half of an x86 processor's cores unless told otherwise, and asks once, at import.
    CORES = json.loads((HERE / "manifest.json").read_text())["target"].get("num-cores")
    os.environ.update({"TVM_NUM_THREADS": str(CORES)} if CORES else {})

import numpy as np
import onnx
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx
from tvm.s_tir.meta_schedule.database import JSONDatabase
from tvm.s_tir.meta_schedule.relax_integration import extract_tasks

PASSES = ("relax.transform.", "relax.backend.", "s_tir.dlight.")
# Passes that TVM lacks, each in a file beside this one.
OWN_PASSES = {
    "mallorn.bf16": "bf16",
    "mallorn.depthwise": "depthwise",
    "mallorn.heads": "heads",
    "mallorn.restore_clip": "clip",
    "mallorn.rows": "rows",
    "mallorn.transposes": "transposes",
    "mallorn.vectors": "vectors",
    "mallorn.winograd": "winograd",
}


# An intrinsic of ours is registered by the pass that needs it.
_TVMS_INTRINSIC = re.compile(r'"Tensorize",[^]]*\], *\["(?!mallorn_)')


def make_pass(step: dict[str, Any]) -> Any:
    """The pass that a step of the recipe names, made with the step's arguments."""
    name = step.get("pass") or step["call"]
    args = [make_pass(a) if isinstance(a, dict) and "call" in a else a for a in step.get("args", [])]
    return getattr(_module(name), name.rpartition(".")[2])(*args)


def _module(name: str) -> Any:
    if name in OWN_PASSES:
        beside = OWN_PASSES[name]
        return importlib.import_module(f"{__package__}.{beside}" if __package__ else beside)
    if name.startswith(PASSES):
        return importlib.import_module(f"tvm.{name.rpartition('.')[0]}")
    raise ValueError(f"{name} is not a graph pass: none of {', '.join((*PASSES, *OWN_PASSES))}")


def run_passes(mod: Any, steps: list[dict[str, Any]], target: Any) -> Any:
    """The module after the steps, in order; an optional step that TVM refuses changes nothing."""
    with target, tvm.transform.PassContext(opt_level=3):
        for step in steps:
            try:
                mod = make_pass(step)(mod)
            except RuntimeError:
                if not step.get("optional"):
                    raise
    return mod


def count_hits(mod: Any, work_dir: str, target: Any) -> tuple[list[str], list[str]]:
    """Tasks with and without a schedule: TVM passes over the latter in silence and leaves naive loops."""
    records = Path(work_dir, "database_tuning_record.json")
    if records.exists() and _TVMS_INTRINSIC.search(records.read_text()):
        importlib.import_module("tvm.s_tir.tensor_intrin")  # takes ten seconds, so only where it is needed
    database = JSONDatabase(work_dir=work_dir)
    found: tuple[list[str], list[str]] = [], []
    for task in extract_tasks(mod, target):
        record = database.query_tuning_record(task.dispatched[0], target, task.task_name)
        found[record is None].append(task.task_name)
    return found


def build(mod: Any, after: list[dict[str, Any]], target: Any, work_dir: str) -> Any:
    """Apply the schedules in work_dir to a module after the recipe's first half, run the second, compile."""
    with target, tvm.transform.PassContext(opt_level=3):
        mod = relax.transform.MetaScheduleApplyDatabase(work_dir)(mod)
    mod = run_passes(mod, after, target)
    # Named, because for GPUs TVM would choose a pipeline that fuses and schedules once more.
    return relax.build(mod, target, relax_pipeline=relax.get_pipeline("default_build"))


def random_inputs(
    model: Any, shapes: dict[str, Any], ranges: dict[str, Any], seed: int = 0
) -> dict[str, Any]:
    """Inputs by name; integers stay in the ranges that the model's look-ups allow."""
    rng, values = np.random.default_rng(seed), {}
    weights = {tensor.name for tensor in model.graph.initializer}
    for value in (v for v in model.graph.input if v.name not in weights):
        kind = value.type.tensor_type
        shape = shapes.get(value.name) or [dim.dim_value for dim in kind.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        low, high = ranges.get(value.name, (0, 2))
        whole = dtype.kind in "iub"
        values[value.name] = np.asarray(rng.integers(low, high, shape) if whole else rng.random(shape), dtype)
    return values


def run(library: str, inputs: list[Any], device: Any) -> tuple[list[Any], float]:
    """Outputs as arrays, and the median latency in milliseconds."""
    vm = relax.VirtualMachine(tvm.runtime.load_module(library), device)
    args = [tvm.runtime.tensor(value, device) for value in inputs]
    result = vm["main"](*args)
    outputs = [result] if hasattr(result, "numpy") else list(result)
    timing = vm.time_evaluator("main", device, number=3, repeat=7, min_repeat_ms=100)(*args)
    return [output.numpy() for output in outputs], timing.median * 1e3


def relative_error(path: str, inputs: dict[str, Any], outputs: list[Any]) -> float:
    """Largest difference from onnxruntime over the largest value, the worst of all outputs."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    pairs = zip(outputs, session.run(None, inputs), strict=True)
    return max(float(np.abs(ours - ref).max() / max(np.abs(ref).max(), 1e-9)) for ours, ref in pairs)


def main() -> None:
    """Compile, count, time, and check if asked."""
    parser = argparse.ArgumentParser(description="Compile a model with tuned schedules and stock TVM.")
    parser.add_argument("model")
    parser.add_argument("-o", "--output", help="keep the compiled library here")
    parser.add_argument("--check", action="store_true", help="compare with onnxruntime")
    args, manifest = parser.parse_args(), json.loads((HERE / "manifest.json").read_text())
    recipe, shapes, attrs = manifest["recipe"], manifest["input_shapes"], manifest["target"]
    target, model = tvm.target.Target(attrs.get("tag", attrs)), onnx.load(args.model)
    mod = run_passes(from_onnx(model, shape_dict=shapes), recipe["before"], target)
    found, missing = count_hits(mod, str(HERE), target)
    inputs = random_inputs(model, shapes, manifest["input_ranges"])
    with tempfile.TemporaryDirectory() as scratch:
        library = args.output or f"{scratch}/model.so"
        build(mod, recipe["after"], target, str(HERE)).export_library(library)
        device = tvm.runtime.device(target.get_target_device_type())
        outputs, latency_ms = run(library, list(inputs.values()), device)
    report = {"workloads_found": len(found), "workloads": len(found) + len(missing), "latency_ms": latency_ms}
    if args.check:
        report["relative_error"] = relative_error(args.model, inputs, outputs)
    sys.stdout.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    main()
