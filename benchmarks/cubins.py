"""Compile the tasks of ten networks for three GPU architectures, without a GPU.

python -m benchmarks.cubins [--networks mlp,resnet18] [--archs sm_80,sm_89,sm_90a] [-o FILE] [--cells DIR]

Each task is scheduled by the recipe's rules (DLight) and compiled to a cubin. A row holds the
resources that ptxas reports for each kernel, or the error of a task that cannot be built; then
the exit code is 1. Takes ten minutes on one core; reuses results in DIR (build/cubins).
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

import tvm
from onnx import ModelProto

from benchmarks.cells import Cells
from benchmarks.networks.development import DEVELOPMENT
from mallorn.core.targets import parse_target
from mallorn.core.values.graph_report import StoredRecipe
from mallorn.kinds.cuda.compiler.compile_cuda import find_toolchain
from mallorn.kinds.cuda.compiler.cuda_kernel_resources import CudaLibrary, KernelFigures, compile_for_cuda
from mallorn.workers.interfaces.model_compiler import ModelTask
from mallorn.workers.tvm.network.extract_tasks import extract
from mallorn.workers.tvm.network.graph_recipes import recipe_for, recipe_steps
from mallorn.workers.tvm.network.run_recipe_passes import as_tvm_target, run_steps
from zoo import MODELS
from zoo.command import Networks

ARCHS: Final = ("sm_80", "sm_89", "sm_90a")
_NAMES: Final = ("convnext", "recommender", "segformer", "shuffle", "squeeze", "unet")
NETWORKS: Final[Networks] = MODELS | {name: DEVELOPMENT[name] for name in _NAMES}
Row = dict[str, Any]


def tasks_of(model: ModelProto, target: str) -> tuple[Sequence[ModelTask], StoredRecipe]:
    """Return the tasks of a model on a target, and the recipe that made them."""
    recipe = recipe_for("tuned", parse_target(target))
    with TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        path.write_bytes(model.SerializeToString())
        return extract(str(path), target, recipe, {}).tasks, recipe


def compile_default(tasks: Mapping[str, ModelTask], target: str, recipe: StoredRecipe) -> CudaLibrary:
    """Compile tasks as a model's library does without records: one source, one cubin."""
    tvm_target, functions = as_tvm_target(target), {}
    for name, task in tasks.items():
        # Load a fresh copy: the rules change the module in place.
        (function,) = tvm.ir.load_json(task.tir).functions.values()
        functions[name] = function.with_attr("global_symbol", name)
    mod, _ = run_steps(tvm.IRModule(functions), recipe_steps(recipe)["after"], tvm_target)
    return compile_for_cuda(mod, tvm_target)


def rows(network: str, arch: str) -> Iterator[Row]:
    """Yield a row for each task of a network on an architecture: its kernels' figures, or the error."""
    target = parse_target({"kind": "cuda", "arch": arch}).text
    extracted, recipe = tasks_of(NETWORKS[network](0), target)
    tasks = {f"task{number}": task for number, task in enumerate(extracted)}
    try:
        built = compile_default(tasks, target, recipe).kernels
        ends: dict[str, Row] = {name: {"kernels": _of(name, built)} for name in tasks}
    except Exception:  # of one task: build each separately to find it
        ends = {name: _build(name, task, target, recipe) for name, task in tasks.items()}
    for name, task in tasks.items():
        facts = {"network": network, "arch": arch, "task": task.name, "op": task.op, "key": task.key}
        yield facts | ends[name]


def _build(name: str, task: ModelTask, target: str, recipe: StoredRecipe) -> Row:
    try:
        return {"kernels": _of(name, compile_default({name: task}, target, recipe).kernels)}
    except Exception as error:  # the row holds the error
        return {"error": f"{type(error).__name__}: {str(error).strip()[-400:]}"}


def _of(name: str, kernels: Sequence[KernelFigures]) -> list[Row]:
    return [asdict(kernel) for kernel in kernels if kernel.name.startswith(f"{name}_")]


def summary(found: Sequence[Row]) -> Mapping[str, Any]:
    """Return counts of tasks and kernels per architecture, and medians of their figures."""
    summaries = {}
    for arch in dict.fromkeys(row["arch"] for row in found):
        own = [row for row in found if row["arch"] == arch]
        kernels = [kernel for row in own for kernel in row.get("kernels", ())]
        summaries[arch] = {
            "tasks": len(own),
            "not built": sum("error" in row for row in own),
            "kernels": len(kernels),
            "kernels that spill": sum(kernel["spill_bytes"] > 0 for kernel in kernels),
            "median registers": median(kernel["registers"] for kernel in kernels),
            "median warps an SM": median(kernel["warps_per_sm"] for kernel in kernels),
        }
    return summaries


def _nvcc_version() -> str:
    nvcc = find_toolchain().nvcc or "nvcc"
    return subprocess.run([nvcc, "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout.split()[
        -1
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--archs", default=",".join(ARCHS))
    parser.add_argument("--cells", type=Path, default=Path("build/cubins"))
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()
    results, cells = [], Cells(args.cells)
    for network in args.networks.split(","):
        for arch in args.archs.split(","):
            cell = f"{network}.{arch}"
            if cell not in cells:
                began_sec = time.perf_counter()
                new_rows = list(rows(network, arch))
                cells.keep(cell, {"rows": new_rows, "seconds": round(time.perf_counter() - began_sec, 1)})
            print(cell, len(cells[cell]["rows"]), "tasks", cells[cell]["seconds"], "s", flush=True)
            results += cells[cell]["rows"]
    content = {"benchmark": "cubins", "nvcc": _nvcc_version(), "summary": summary(results)}
    print(json.dumps(content, indent=1))
    if args.output:
        lines = ",\n".join(json.dumps(row) for row in results)
        head = json.dumps(content)[:-1]
        args.output.write_text(f'{head}, "rows": [\n{lines}\n]}}\n')
    sys.exit(any("error" in row for row in results))


if __name__ == "__main__":
    main()
