"""Vector registers that the first guesses for boards of AArch64 spill; nothing is run.

python -m benchmarks.boards.guesses [--json docs/results/boards/guesses.json]

Of each network the ten kernels with most operations in all calls.
"""

import argparse
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from benchmarks.boards.__main__ import BOARDS, target_of
from benchmarks.boards.assembly import HOTTEST, describe_assembly
from benchmarks.boards.networks import built
from benchmarks.digests import compile_first_guess
from benchmarks.hosts import describe_host
from benchmarks.networks.quantised import QUANTISED
from mallorn.core.targets import Target, parse_target
from mallorn.workers.tvm.network.extract_tasks import describe_tasks
from mallorn.workers.tvm.network.graph_recipes import recipe_for, recipe_steps
from mallorn.workers.tvm.network.import_onnx_to_relax import load_network
from mallorn.workers.tvm.network.run_recipe_passes import as_tvm_target, run_steps
from zoo import MODELS

PRECISIONS: Final = {"resnet18": ("float32", "fp16"), "bert-small": ("float32", "fp16")}


def main() -> None:
    """Compile, and write one line a network."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, default=Path("docs/results/boards/guesses.json"))
    args, rows = parser.parse_args(), []
    with TemporaryDirectory(prefix="guesses-") as folder:
        for name, build in (MODELS | QUANTISED).items():
            path = Path(folder, f"{name}.onnx")
            built(build)(path)
            for board in BOARDS:
                for precision in PRECISIONS.get(name, ("float32",)):
                    kernels = _kernels(path, parse_target(target_of(board)), precision)
                    rows.append({"network": name, "board": board, "precision": precision, "kernels": kernels})
                    spilled = [kernel for kernel in kernels if kernel["spills"]]
                    print(f"{name} {board} {precision}: {len(spilled)} of {len(kernels)} spill", flush=True)
    args.json.write_text(json.dumps({"networks": rows, **describe_host()}, indent=1) + "\n")


def _kernels(path: Path, target: Target, precision: str) -> list[dict[str, Any]]:
    tvm_target = as_tvm_target(target.text)
    mod = load_network(str(path), {}, tvm_target).mod
    for step in recipe_steps(recipe_for("tuned", target, precision))["before"]:
        mod, _ = run_steps(mod, [step], tvm_target)
    tasks = sorted(describe_tasks(mod, tvm_target), key=lambda task: -task.flops * task.weight)
    kernels = []
    for task in tasks[:HOTTEST]:
        if (found := compile_first_guess(task.tir, target)) is not None:
            assembly = describe_assembly(str(found[1].inspect_source("asm")))
            kernels.append({"name": task.name, "operations": task.flops * task.weight, **assembly})
    return kernels


if __name__ == "__main__":
    main()
