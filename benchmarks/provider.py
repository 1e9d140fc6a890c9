"""Figures of onnxruntime's provider: a call through it, through mallorn_runtime and in onnxruntime alone.

python -m benchmarks.provider FOLDER [NAME ...] [--raw docs/results/provider] [--seconds 20] [--calls 10000]

FOLDER has ONNX files, and for each NAME.onnx a directory NAME-tuned with a library. In one process all
callers take turns, some calls at a time, with inputs as numpy allocates them, and aligned to 64 bytes.
`grown_bytes` is what the process grows by over `--calls` further calls through the provider. The part
`spinning` is a network of four regions between five products: with the provider and without, while
onnxruntime's idle threads spin (its default) and while they do not. Each part is one raw file; a second
run adds missing ones. The headline is the provider's time as a share of that of mallorn_runtime.Session.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.cells import Cells
from benchmarks.hosts import describe_host
from benchmarks.model_folder import files_of, folder_parser
from benchmarks.runtime import ROOT, run_script

RAW: Final = Path("docs/results/provider")
SHOWN: Final = ("microseconds", "ratio", "grown_bytes")
#: Runs in a process of its own, and prints JSON.
TURNS: Final = """
import gc, json, sys, time
import numpy as np, onnxruntime
import mallorn_runtime.onnxruntime as mallorn
from pathlib import Path
from mallorn_runtime import Session, empty
model, tuned, library, seconds, calls = sys.argv[1:]
seconds, calls = float(seconds), int(calls)
mallorn.LIBRARY = Path(library)
session = Session(Path(tuned, "model.so"))
rng, inputs = np.random.default_rng(0), {}
for spec in session.inputs:
    low, high = session.meta["input_ranges"].get(spec.name, (0, 2))
    is_float = np.dtype(spec.dtype).kind == "f"
    largest = {name: most for name, (_, most) in session.ranges.items()}
    shape = [eval(str(size), largest) for size in spec.shape]
    array = rng.random(shape) if is_float else rng.integers(low, high, shape)
    inputs[spec.name] = np.asarray(array, spec.dtype)
aligned = {name: empty(array.shape, array.dtype) for name, array in inputs.items()}
for name, array in inputs.items():
    aligned[name][...] = array
ours = onnxruntime.InferenceSession(model, mallorn.session_options(tuned))
theirs = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
callers = {
    "onnxruntime": lambda: theirs.run(None, inputs),
    "runtime": lambda: session.run(inputs),
    "provider": lambda: ours.run(None, inputs),
    "runtime, aligned": lambda: session.run(aligned),
    "provider, aligned": lambda: ours.run(None, aligned),
}
expected, found = theirs.run(None, inputs), ours.run(None, inputs)
error = max(
    float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30))
    for a, b in zip(found, expected) if b.size and b.dtype.kind == "f"
) if any(b.dtype.kind == "f" for b in expected) else None
times = {name: [] for name in callers}
started = time.perf_counter()
for call in callers.values():
    call()
count = max(1, int(0.05 / ((time.perf_counter() - started) / len(callers))))
end = time.perf_counter() + seconds
while time.perf_counter() < end or len(times["provider"]) < 5:
    for name, call in callers.items():
        call()
        started = time.perf_counter()
        for _ in range(count):
            call()
        times[name].append((time.perf_counter() - started) / count * 1e6)
def resident():
    gc.collect()
    return int(open("/proc/self/statm").read().split()[1]) * 4096
for _ in range(calls // 10):
    callers["provider"]()
before = resident()
for _ in range(calls):
    callers["provider"]()
print(json.dumps({
    "microseconds": {name: sorted(each)[len(each) // 2] for name, each in times.items()},
    "raw": times, "error": error, "grown_bytes": resident() - before, "calls": calls,
}))
"""


SPINNING: Final = """
import json, sys, time
import numpy as np, onnxruntime
import mallorn_runtime.onnxruntime as mallorn
from pathlib import Path
model, tuned, library, seconds = sys.argv[1:]
mallorn.LIBRARY = Path(library)
def start(provider, spins):
    plain = onnxruntime.SessionOptions()
    options = mallorn.session_options(tuned, options=plain) if provider else plain
    options.add_session_config_entry("session.intra_op.allow_spinning", spins)
    names = {} if provider else {"providers": ["CPUExecutionProvider"]}
    return onnxruntime.InferenceSession(model, options, **names)
sessions = {
    f"{name}, {words}": start(name == "provider", spins)
    for name in ("provider", "onnxruntime") for words, spins in (("spinning", "1"), ("not spinning", "0"))
}
(info,) = sessions["onnxruntime, spinning"].get_inputs()
inputs = {info.name: np.random.default_rng(0).standard_normal(info.shape).astype("float32")}
times = {name: [] for name in sessions}
end = time.perf_counter() + float(seconds)
while time.perf_counter() < end:
    for name, session in sessions.items():
        session.run(None, inputs)
        started = time.perf_counter()
        for _ in range(10):
            session.run(None, inputs)
        times[name].append((time.perf_counter() - started) / 10 * 1e6)
        time.sleep(0.02)  # until its threads sleep
print(json.dumps({
    "microseconds": {name: sorted(each)[len(each) // 2] for name, each in times.items()}, "raw": times
}))
"""
REGIONS, ROWS, COLUMNS = 4, 256, 512


def main() -> None:
    """Measure what has no raw file yet, and print the figures."""
    parser = folder_parser(__doc__)
    parser.add_argument("--raw", type=Path, default=RAW)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--calls", type=int, default=10_000)
    args = parser.parse_args()
    cells = Cells(args.raw)
    library = compile_provider()
    if "spinning" not in cells:
        cells.keep("spinning", {**time_spinning(library, args.seconds), **describe_host()})
    print("spinning", json.dumps(cells["spinning"]["microseconds"]), flush=True)
    for path in files_of(args):
        if path.stem not in cells:
            figures = time_turns(path.resolve(), library, args.seconds, args.calls)
            cells.keep(path.stem, {**figures, **describe_host()})
        cell = cells[path.stem]
        print(path.stem, json.dumps({key: cell[key] for key in SHOWN}), flush=True)


def compile_provider() -> Path:
    """Compile this checkout's provider into build; return its path."""
    library = ROOT / "build" / "libmallorn_onnxruntime.so"
    library.parent.mkdir(exist_ok=True)
    subprocess.run([sys.executable, str(ROOT / "runtime" / "build_provider.py"), str(library)], check=True)
    return library


def time_turns(model: Path, library: Path, seconds: float, calls: int) -> dict[str, Any]:
    """Return the times of a model's callers in turn, and the memory of calls through the provider."""
    tuned = model.with_name(f"{model.stem}-tuned")
    if not (tuned / "model.so").is_file():
        raise SystemExit(f"{tuned} has no model.so: mallorn tune {model} --out {tuned}")
    figures = run_script(TURNS, model, tuned, library, seconds, calls)
    times: Mapping[str, float] = figures["microseconds"]
    return {**figures, "ratio": times["provider"] / times["runtime"]}


def time_spinning(library: Path, seconds: float) -> dict[str, Any]:
    """Return times of a network whose products are onnxruntime's and whose other nodes are regions."""
    from tvm.target.codegen import llvm_get_system_cpu

    from mallorn.core.targets import parse_target
    from mallorn.workers.tvm.compile.compile_model import compile_model
    from mallorn.workers.tvm.network.graph_recipes import recipe_for

    cores = len(os.sched_getaffinity(0))
    target = parse_target({"kind": "llvm", "num-cores": cores, "mcpu": llvm_get_system_cpu()})
    with TemporaryDirectory() as folder:
        model, regions = Path(folder, "model.onnx"), Path(folder, "tuned", "regions")
        regions.mkdir(parents=True)
        nodes, tensor = [], "x"
        for index in range(REGIONS):
            steps = [("MatMul", [tensor, "w"]), ("Tanh", ["a"]), ("Erf", ["b"]), ("Exp", ["c"])]
            for (operator, inputs), output in zip(steps, "abcd", strict=True):
                names = [name if len(name) > 1 or name in "xw" else f"{name}{index}" for name in inputs]
                nodes.append(helper.make_node(operator, names, [f"{output}{index}"]))
            tensor = f"d{index}"
        nodes.append(helper.make_node("MatMul", [tensor, "w"], ["y"]))
        weights = np.random.default_rng(0).standard_normal((COLUMNS, COLUMNS)).astype("float32") / 20
        save_network(model, nodes, "x", "y", [numpy_helper.from_array(weights, "w")])
        for index in range(REGIONS):
            part = regions / f"{index}.onnx"
            save_network(part, nodes[4 * index + 1 : 4 * index + 4], f"a{index}", f"d{index}", [])
            output = str(part.with_suffix(".so"))
            recipe = recipe_for("tuned", target)
            compile_model(str(part), None, target.text, recipe, output, {}, source_path=str(model))
        return dict(run_script(SPINNING, model, Path(folder, "tuned"), library, seconds))


def save_network(path: Path, nodes: Sequence[Any], given: str, made: str, weights: Sequence[Any]) -> None:
    """Write a network of one input and one output of the same size."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [ROWS, COLUMNS]) for name in (given, made)]
    graph = helper.make_graph(nodes, path.stem, ends[:1], ends[1:], weights)
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), path)


if __name__ == "__main__":
    main()
