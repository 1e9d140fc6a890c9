"""Rate of ONNX's elementwise functions, compared with a copy of as much memory.

    python -m benchmarks.functions [--numbers 4194304] [--functions Sin,Exp] [--json FILE]

The recipe lowers each with and without the pass that vectorises functions; the first guess schedules
it for one core; the minimum of 20 times counts. Bytes are those of operands and result.
"""

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from math import exp, log
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import tvm
from onnx import TensorProto, helper

from benchmarks.hosts import describe_host
from mallorn.core.targets import parse_target
from mallorn.core.values.machine import assume_typical_cpu
from mallorn.graphc.core import pass_runner
from mallorn.graphc.export import compile_network
from mallorn.searchers.roller.rank_candidates import ranked
from mallorn.workers.tvm.network.graph_recipes import TUNED, recipe_steps
from mallorn.workers.tvm.network.run_recipe_passes import as_tvm_target
from mallorn.workers.tvm.programs.loop_nests import nests
from mallorn.workers.tvm.space.rebuild_schedule import rebuild
from mallorn.workers.tvm.space.sketches import design_space

COPY: Final = "copy"
PASS: Final = "vectorize_smooth_functions"
OPERANDS: Final[Mapping[str, int]] = {
    **dict.fromkeys(("Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Tanh"), 1),
    **dict.fromkeys(("Asinh", "Acosh", "Atanh", "Exp", "Log", "Sqrt", "Erf", "Sigmoid", "Softplus"), 1),
    **dict.fromkeys(("Mish", "Elu", "Selu", "Celu", "Gelu", "HardSwish", "HardSigmoid", "Round"), 1),
    **dict.fromkeys(("Pow", "Mod"), 2),
}
ATTRIBUTES: Final[Mapping[str, dict[str, Any]]] = {"Mod": {"fmod": 1}}
LANES, REPEATS, COLUMNS = 8, 20, 1024


def main() -> None:
    """Print each function's rates, and the geometric mean over a copy's rate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--numbers", type=int, default=1 << 22)
    parser.add_argument("--functions", default=",".join(OPERANDS))
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rates, without = {COPY: copied(args.numbers)}, {}
    for name in args.functions.split(","):
        rates[name] = rate(name, args.numbers)
        without[name] = rate_without_pass(name, args.numbers)
        other_rate = "no code" if without[name] is None else f"{without[name]:.2f} GB/s"
        share = rates[name] / rates[COPY]
        print(f"{name}: {rates[name]:.2f} GB/s, {share:.2f} of a copy's; without: {other_rate}", flush=True)
    print(f"of a copy's {rates[COPY]:.1f} GB/s, geometric mean: {headline(rates):.2f}")
    if args.json:
        figures = {"numbers": args.numbers, "gb_s": rates, "gb_s_without": without}
        raw = {**describe_host(), **figures, "headline": headline(rates)}
        args.json.write_text(json.dumps(raw, indent=1) + "\n")


def headline(rates: Mapping[str, float]) -> float:
    """Return the geometric mean of the rates over that of a copy."""
    shares = [log(each / rates[COPY]) for name, each in rates.items() if name != COPY]
    return exp(sum(shares) / len(shares))


def copied(numbers: int) -> float:
    """Return the GB/s that numpy reads and writes in a copy."""
    source, result, best = np.ones(numbers, "float32"), np.zeros(numbers, "float32"), float("inf")
    for _ in range(REPEATS):
        started = time.perf_counter()
        np.copyto(result, source)
        best = min(best, time.perf_counter() - started)
    return 2 * source.nbytes / best / 1e9


def rate_without_pass(name: str, numbers: int) -> float | None:
    """Return the rate without the pass, or None if LLVM cannot vectorise the function."""
    try:
        return rate(name, numbers, without=(PASS,))
    except tvm.error.InternalError:
        return None


def rate(name: str, numbers: int, without: Sequence[str] = ()) -> float:
    """Return the GB/s of a function scheduled by its first guess."""
    target = parse_target({"kind": "llvm", "mcpu": tvm.target.codegen.llvm_get_system_cpu(), "num-cores": 1})
    shape = (numbers // COLUMNS, COLUMNS)
    tir = tvm.ir.save_json(program(model(name, shape), as_tvm_target(target.text), without))
    first, *_ = ranked(design_space(tir, target.text), nests(tir), assume_typical_cpu(1, LANES), 1)
    (sketch,) = (each for each in design_space(tir, target.text) if each.key == first.sketch)
    schedule = rebuild(tir, target.text, sketch.trace, first.decisions)
    if schedule is None:
        raise SystemExit(f"the first guess of {name} is not valid")
    library = tvm.compile(schedule.mod, target=as_tvm_target(target.text)).jit()
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(0.1, 0.9, shape).astype("float32") for _ in range(OPERANDS[name] + 1)]
    tensors = map(tvm.runtime.tensor, arrays)
    times = library.time_evaluator("main", tvm.cpu(), number=1, repeat=REPEATS)(*tensors).results
    return float(len(arrays) * arrays[0].nbytes / min(times) / 1e9)


def model(name: str, shape: tuple[int, int]) -> Any:
    """Return a network that consists of this operator."""
    names = [f"x{number}" for number in range(OPERANDS[name])]
    inputs = [helper.make_tensor_value_info(each, TensorProto.FLOAT, shape) for each in names]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)
    node = helper.make_node(name, names, ["y"], **ATTRIBUTES.get(name, {}))
    graph = helper.make_graph([node], name, inputs, [result])
    return helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 22)])


def program(network: Any, target: Any, without: Sequence[str]) -> Any:
    """Return the program of the network's only task."""
    steps = recipe_steps(TUNED)["before"]
    mod, _ = pass_runner.run_passes(compile_network.import_graph(network, {}, target), steps, target, without)
    (task,) = compile_network.list_tuning_tasks(mod, target)
    return task.dispatched[0]


if __name__ == "__main__":
    main()
