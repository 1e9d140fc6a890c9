"""Device code of ten networks for three GPU architectures, made without a GPU, and what ptxas says of it.

python -m benchmarks.cubins [--networks mlp,resnet18] [--archs sm_80,sm_89,sm_90a] [-o FILE] [--cells DIR]

Each task of a network is scheduled by the recipe's rules (DLight) and compiled to a cubin. A row has what
each kernel takes of a multiprocessor. A task that cannot be built has the error instead, and the exit code is
1 then. The whole takes ten minutes of one core; what is in DIR (build/cubins) is not compiled again.
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
from workers.interfaces.model_compiler import ModelTask
from workers.tvm.cuda_toolchain import find_toolchain
from workers.tvm.extract_tasks import extract
from workers.tvm.graph_recipes import recipe_for, recipe_of, stored_recipe
from workers.tvm.kernel_figures import CudaLibrary, KernelFigures, compile_for_cuda
from workers.tvm.run_recipe_passes import as_tvm_target, run_steps
from zoo import MODELS
from zoo.command import Networks

ARCHS: Final = ("sm_80", "sm_89", "sm_90a")
_NAMES: Final = ("convnext", "recommender", "segformer", "shuffle", "squeeze", "unet")
NETWORKS: Final[Networks] = MODELS | {name: DEVELOPMENT[name] for name in _NAMES}
Row = dict[str, Any]


def tasks_of(model: ModelProto, target: str) -> tuple[Sequence[ModelTask], StoredRecipe]:
    """Return the tasks of a model on a target, and the recipe that made them."""
    recipe = stored_recipe(recipe_for("tuned", parse_target(target)))
    with TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        path.write_bytes(model.SerializeToString())
        return extract(str(path), target, recipe, {}).tasks, recipe


def compile_default(tasks: Mapping[str, ModelTask], target: str, recipe: StoredRecipe) -> CudaLibrary:
    """Compile tasks as a model's library has them where no record schedules them: one source, one cubin."""
    tvm_target, functions = as_tvm_target(target), {}
    for name, task in tasks.items():
        # Loaded anew: the rules change the module that they are given.
        (function,) = tvm.ir.load_json(task.tir).functions.values()
        functions[name] = function.with_attr("global_symbol", name)
    mod, _ = run_steps(tvm.IRModule(functions), recipe_of(recipe).after, tvm_target)
    return compile_for_cuda(mod, tvm_target)


def rows(network: str, arch: str) -> Iterator[Row]:
    """Yield a row for each task of a network on an architecture: its kernels' figures, or the error."""
    target = parse_target({"kind": "cuda", "arch": arch}).text
    found, recipe = tasks_of(NETWORKS[network](0), target)
    tasks = {f"task{number}": task for number, task in enumerate(found)}
    try:
        built = compile_default(tasks, target, recipe).kernels
        ends: dict[str, Row] = {name: {"kernels": _of(name, built)} for name in tasks}
    except Exception:  # of one of them: the rows say which
        ends = {name: _alone(name, task, target, recipe) for name, task in tasks.items()}
    for name, task in tasks.items():
        known = {"network": network, "arch": arch, "task": task.name, "op": task.op, "key": task.key}
        yield known | ends[name]


def _alone(name: str, task: ModelTask, target: str, recipe: StoredRecipe) -> Row:
    try:
        return {"kernels": _of(name, compile_default({name: task}, target, recipe).kernels)}
    except Exception as error:  # the row says what cannot be built
        return {"error": f"{type(error).__name__}: {str(error).strip()[-400:]}"}


def _of(name: str, kernels: Sequence[KernelFigures]) -> list[Row]:
    return [asdict(kernel) for kernel in kernels if kernel.name.startswith(f"{name}_")]


def summary(found: Sequence[Row]) -> Mapping[str, Any]:
    """Return by architecture how many tasks and kernels were built, and the medians of their figures."""
    told = {}
    for arch in dict.fromkeys(row["arch"] for row in found):
        mine = [row for row in found if row["arch"] == arch]
        kernels = [kernel for row in mine for kernel in row.get("kernels", ())]
        told[arch] = {
            "tasks": len(mine),
            "not built": sum("error" in row for row in mine),
            "kernels": len(kernels),
            "kernels that spill": sum(kernel["spill_bytes"] > 0 for kernel in kernels),
            "median registers": median(kernel["registers"] for kernel in kernels),
            "median warps an SM": median(kernel["warps_per_sm"] for kernel in kernels),
        }
    return told


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
    found, cells = [], Cells(args.cells)
    for network in args.networks.split(","):
        for arch in args.archs.split(","):
            cell = f"{network}.{arch}"
            if cell not in cells:
                began_sec = time.perf_counter()
                made = list(rows(network, arch))
                cells.keep(cell, {"rows": made, "seconds": round(time.perf_counter() - began_sec, 1)})
            print(cell, len(cells[cell]["rows"]), "tasks", cells[cell]["seconds"], "s", flush=True)
            found += cells[cell]["rows"]
    told = {"benchmark": "cubins", "nvcc": _nvcc_version(), "summary": summary(found)}
    print(json.dumps(told, indent=1))
    if args.output:
        lines = ",\n".join(json.dumps(row) for row in found)
        head = json.dumps(told)[:-1]
        args.output.write_text(f'{head}, "rows": [\n{lines}\n]}}\n')
    sys.exit(any("error" in row for row in found))


if __name__ == "__main__":
    main()
