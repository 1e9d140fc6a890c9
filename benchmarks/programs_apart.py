"""What it costs that programs of models run apart (ADR 0102): `python -m benchmarks.programs_apart`.

For each network, fresh processes in turn import it by the recipes `plain` and `tuned` and write the
references of its first tasks, with programs in processes of their own (`apart`), as workers do it, and
without (`within`).
"""

import argparse
import json
import multiprocessing
import statistics
import time
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.hosts import describe_host
from benchmarks.networks.development import DEVELOPMENT
from mallorn.core.targets import parse_target
from zoo import MODELS
from zoo.command import Networks

ARMS: Final = ("apart", "within")
RECIPES: Final = ("plain", "tuned")
STEPS: Final = (*RECIPES, "references")
NETWORKS: Final[Networks] = MODELS | DEVELOPMENT
TARGET: Final = '{"kind": "llvm", "mcpu": "haswell", "num-cores": 2}'  # which every machine with AVX2 runs
Times = dict[str, float]


def time_arm(arm: str, model: str, references: int, answer: Connection) -> None:
    """Send the seconds of each step, in this process, which is fresh."""
    from mallorn.workers.sandbox.sandbox import BEST_EFFORT
    from mallorn.workers.tvm.compile.program_evaluator import ProgramEvaluator, redirect_folding
    from mallorn.workers.tvm.compile.reference_outputs import write_reference
    from mallorn.workers.tvm.network.extract_tasks import extract
    from mallorn.workers.tvm.network.graph_recipes import recipe_for
    from tests.fixtures.kernel_libraries import run_here

    target, run, compile_network = parse_target(TARGET), run_here, extract
    if arm == "apart":
        evaluator = ProgramEvaluator(BEST_EFFORT)
        redirect_folding(evaluator)
        run, compile_network = evaluator(evaluator.run), evaluator(extract)  # a process for each call
    took: Times = {}
    for name in RECIPES:
        began_sec = time.monotonic()
        tasks = compile_network(model, target.text, recipe_for(name, target), {}).tasks
        took[name] = time.monotonic() - began_sec
    files = f"{model}.inputs.npz", f"{model}.expected.npz"
    began_sec = time.monotonic()
    for task in tasks[:references]:
        write_reference(task.tir, task.args, 7, *files, run)
    took["references"] = time.monotonic() - began_sec
    answer.send(took)


def measure(name: str, references: int, repeats: int) -> dict[str, dict[str, list[float]]]:
    """Return the seconds of each step by arm, of all repeats in turn."""
    seconds: dict[str, dict[str, list[float]]] = {arm: {step: [] for step in STEPS} for arm in ARMS}
    spawn = multiprocessing.get_context("spawn")
    with TemporaryDirectory(prefix="mallorn-apart-") as folder:
        model = Path(folder, "model.onnx")
        model.write_bytes(NETWORKS[name](0).SerializeToString(deterministic=True))
        for repeat in range(repeats):
            for arm in ARMS if repeat % 2 else ARMS[::-1]:
                receiver, sender = multiprocessing.Pipe(duplex=False)
                process = spawn.Process(target=partial(time_arm, arm, str(model), references, sender))
                process.start()
                sender.close()  # so that the end of a process that raised is seen
                for step, took in receiver.recv().items():
                    seconds[arm][step].append(round(took, 4))
                process.join()
    return seconds


def ratios(seconds: dict[str, dict[str, list[float]]]) -> Times:
    """Return, by step, the median seconds apart over those within."""
    apart, within = ({step: statistics.median(seconds[arm][step]) for step in STEPS} for arm in ARMS)
    return {step: round(apart[step] / within[step], 3) for step in STEPS}


def main() -> None:
    """Measure the networks named, and print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--networks", nargs="+", choices=[*NETWORKS], default=["resnet18", "bert-small"])
    parser.add_argument("--references", type=int, default=12, help="tasks of each network")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows = {}
    for name in args.networks:
        seconds = measure(name, args.references, args.repeats)
        rows[name] = {"seconds": seconds, "apart_over_within": ratios(seconds)}
        medians = (
            f"{step} {statistics.median(seconds['apart'][step]):.2f} s ({ratio:.2f} of within)"
            for step, ratio in ratios(seconds).items()
        )
        print(f"{name}: {', '.join(medians)}")
    headline = max(ratio for row in rows.values() for ratio in row["apart_over_within"].values())
    if args.json:
        raw = {"benchmark": "programs_apart", **describe_host(), "headline": headline, "networks": rows}
        args.json.write_text(json.dumps(raw, indent=1) + "\n")


if __name__ == "__main__":
    main()
