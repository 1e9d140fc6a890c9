"""Device code of ten networks for three GPU architectures, made without a GPU, and what ptxas says of it.

python -m benchmarks.cubins [--networks mlp,resnet18] [--archs sm_80,sm_89,sm_90a] [-o FILE] [--cells DIR]

Each task of a network is scheduled by the recipe's rules (DLight) and compiled to a cubin. A row has what
each kernel takes of a multiprocessor. A task that cannot be built has the error instead, and the command exits
with 1. The whole takes half an hour of one core; what is in DIR (build/cubins) is not compiled again.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

import tvm

from benchmarks.cells import Cells
from benchmarks.networks.development import DEVELOPMENT
from mallorn.core.targets import parse_target
from mallorn.core.values.graph_report import StoredRecipe
from workers.interfaces.model_compiler import ModelTask
from workers.tvm.cuda_toolchain import find_toolchain
from workers.tvm.extract_tasks import extract
from workers.tvm.graph_recipes import recipe_for, recipe_of, stored_recipe
from workers.tvm.kernel_figures import CudaLibrary, compile_for_cuda
from workers.tvm.run_recipe_passes import as_tvm_target, run_steps
from zoo import MODELS
from zoo.command import Networks

ARCHS: Final = ("sm_80", "sm_89", "sm_90a")
_NAMES: Final = ("convnext", "recommender", "segformer", "shuffle", "squeeze", "unet")
NETWORKS: Final[Networks] = MODELS | {name: DEVELOPMENT[name] for name in _NAMES}
Row = dict[str, Any]


def tasks_of(network: str, target: str) -> tuple[Sequence[ModelTask], StoredRecipe]:
    """Return the tasks of a network on a target, and the recipe that made them."""
    recipe = stored_recipe(recipe_for("tuned", parse_target(target)))
    with TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        path.write_bytes(NETWORKS[network](0).SerializeToString())
        return extract(str(path), target, recipe, {}).tasks, recipe


def compile_default(task: ModelTask, target: str, recipe: StoredRecipe) -> CudaLibrary:
    """Compile a task as a model's library has it where no record schedules it."""
    tvm_target = as_tvm_target(target)
    # Loaded anew: the rules change the module that they are given.
    mod, _ = run_steps(tvm.ir.load_json(task.tir), recipe_of(recipe).after, tvm_target)
    return compile_for_cuda(mod, tvm_target)


def row_of(task: ModelTask, target: str, recipe: StoredRecipe) -> Row:
    """Return the figures of a task's kernels, or the error."""
    row: Row = {"task": task.name, "op": task.op, "key": task.key}
    began_sec = time.perf_counter()
    try:
        built = compile_default(task, target, recipe)
    except Exception as error:  # the row says what cannot be built
        return row | {"error": f"{type(error).__name__}: {str(error).strip()[-400:]}"}
    elapsed_ms = round((time.perf_counter() - began_sec) * 1000)
    sizes = sum(len(code.cubin) for code in built.codes)
    kernels = [asdict(kernel) for kernel in built.kernels]
    return row | {"build_ms": elapsed_ms, "cubin_bytes": sizes, "kernels": kernels}


def rows(networks: Sequence[str], archs: Sequence[str], cells: Cells) -> Iterator[Row]:
    """Yield a row for each network, architecture and task."""
    for network in networks:
        for arch in archs:
            target = parse_target({"kind": "cuda", "arch": arch}).text
            tasks, recipe = tasks_of(network, target)
            for task in tasks:
                cell = f"{task.key}.{arch}"
                if cell not in cells:
                    cells.keep(cell, row_of(task, target, recipe))
                yield {"network": network, "arch": arch, **cells[cell], "task": task.name}


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
            "median build_ms": median(row["build_ms"] for row in mine if "build_ms" in row),
        }
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--archs", default=",".join(ARCHS))
    parser.add_argument("--cells", type=Path, default=Path("build/cubins"))
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()
    found = []
    for row in rows(args.networks.split(","), args.archs.split(","), Cells(args.cells)):
        found.append(row)
        print(
            row["network"], row["arch"], row["task"], row.get("error") or f"{row['build_ms']} ms", flush=True
        )
    told = {"benchmark": "cubins", "nvcc": str(find_toolchain().nvcc), "summary": summary(found)}
    print(json.dumps(told, indent=1))
    if args.output:
        lines = ",\n".join(json.dumps(row) for row in found)
        head = json.dumps(told)[:-1]
        args.output.write_text(f'{head}, "rows": [\n{lines}\n]}}\n')
    sys.exit(any("error" in row for row in found))


if __name__ == "__main__":
    main()
