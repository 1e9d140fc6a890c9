"""Figures of mallorn-runtime: import time, cost of a call, latency of networks, many callers.

python -m benchmarks.runtime FOLDER [NAME ...] [--raw docs/results/runtime] [--trials 64] [--rounds 5]

Each network of FOLDER is tuned once, into FOLDER/NAME-tuned, and compiled; FOLDER/NAME.options
may hold options such as `--dynamic rows=1..64`. In each round `mallorn bench` times it, then a
process that calls `Session.run`, a range with its largest sizes. `error` is the largest
difference from onnxruntime, as a share of its largest number. The cost of a call is that
of a network of one small operator: `Session.run`, the function of TVM's virtual machine with
prepared tensors, and onnxruntime on one thread take turns in one process. Callers: calls a
second of ten threads with a virtual machine for each call (as sessions do) and with one
machine under a lock. Each part is one raw file; a second run adds missing ones. The
headline is microseconds of a call over TVM's own.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

import onnx
from onnx import TensorProto, helper

from benchmarks.cells import Cells
from benchmarks.hosts import describe_host
from benchmarks.model_folder import files_of, folder_parser

ROOT: Final = Path(__file__).parents[1]
RAW: Final = Path("docs/results/runtime")
STARTS: Final = 20
SHOWN: Final = ("figures", "ratio")
# What processes of the runtime print, as JSON.
IMPORT: Final = """
import json, time
wall, processor = time.perf_counter(), time.process_time()
import mallorn_runtime
print(json.dumps([time.perf_counter() - wall, time.process_time() - processor]))
"""
PREPARE: Final = """
import json, sys, threading, time
import numpy as np
from mallorn_runtime import Session, empty
session, rng = Session(sys.argv[1]), np.random.default_rng(0)
inputs = {}
for spec in session.inputs:
    low, high = session.meta["input_ranges"].get(spec.name, (0, 2))
    is_float = np.dtype(spec.dtype).kind == "f"
    largest = {name: most for name, (_, most) in session.ranges.items()}
    shape = [eval(str(size), largest) for size in spec.shape]
    array = rng.random(shape) if is_float else rng.integers(low, high, shape)
    inputs[spec.name] = empty(shape, spec.dtype)
    inputs[spec.name][...] = array
outputs = session.run(inputs)
"""
LATENCY: Final = (
    PREPARE
    + """
times, end = [], time.perf_counter() + 3
while time.perf_counter() < end or len(times) < 20:
    started = time.perf_counter()
    session.run(inputs)
    times.append(time.perf_counter() - started)
import onnxruntime
expected = onnxruntime.InferenceSession(sys.argv[2], providers=["CPUExecutionProvider"]).run(None, inputs)
error = max(
    float(np.abs(ours - theirs).max() / max(np.abs(theirs).max(), 1e-30))
    for ours, theirs in zip(outputs.values(), expected) if theirs.size
)
print(json.dumps([sorted(times)[len(times) // 2] * 1e6, error]))
"""
)
CALL: Final = (
    PREPARE
    + """
import onnxruntime, tvm_ffi
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
theirs = onnxruntime.InferenceSession(sys.argv[2], options, providers=["CPUExecutionProvider"])
main = session._idle[0]
tensors = [tvm_ffi.from_dlpack(array) for array in inputs.values()]
unaligned = {
    name: np.empty(array.size + 1, array.dtype)[1:].reshape(array.shape) for name, array in inputs.items()
}
calls = {
    "session": lambda: session.run(inputs),
    "session, inputs copied": lambda: session.run(unaligned),
    "tvm": lambda: main(*tensors),
    "onnxruntime": lambda: theirs.run(None, inputs),
}
times = {name: [] for name in calls}
for _ in range(200):
    for name, call in calls.items():
        started = time.perf_counter()
        for _ in range(200):
            call()
        times[name].append((time.perf_counter() - started) / 200 * 1e6)
print(json.dumps({name: sorted(each)[len(each) // 2] for name, each in times.items()}))
"""
)
CALLERS: Final = (
    PREPARE
    + """
lock, session = threading.Lock(), Session(sys.argv[1], threads=1)
def locked():
    with lock:
        session.run(inputs)
def rate(call):
    count, is_over = [0] * 10, threading.Event()
    def caller(number):
        while not is_over.is_set():
            call()
            count[number] += 1
    threads = [threading.Thread(target=caller, args=(number,)) for number in range(10)]
    [thread.start() for thread in threads]
    time.sleep(3)
    is_over.set()
    [thread.join() for thread in threads]
    return sum(count) / 3
print(json.dumps([{"machines": rate(lambda: session.run(inputs)), "lock": rate(locked)} for _ in range(3)]))
"""
)


def main() -> None:
    """Measure what has no raw file yet, and print the figures."""
    parser = folder_parser(__doc__)
    parser.add_argument("--raw", type=Path, default=RAW)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    cells = Cells(args.raw)

    def measure(name: str, figures: Callable[[], Mapping[str, Any]]) -> None:
        if name not in cells:
            cells.keep(name, {**figures(), **describe_host()})
        print(name, json.dumps({key: cells[name][key] for key in cells[name] if key in SHOWN}), flush=True)

    measure("import", time_import)
    measure("call", lambda: in_small_network(CALL))
    measure("callers", lambda: in_small_network(CALLERS, rows=1024))
    for path in files_of(args):
        measure(path.stem, lambda path=path: time_network(path.resolve(), args.trials, args.rounds))  # type: ignore[misc]
    microseconds = cells["call"]["figures"]
    over_tvm = microseconds["session"] - microseconds["tvm"]
    print(f"a call takes {over_tvm:.1f} us more than TVM's own, {microseconds['tvm']:.1f} us")


def time_import() -> dict[str, Any]:
    """Return medians of wall and processor seconds of the import in new processes."""
    times = [run_script(IMPORT) for _ in range(STARTS)]
    wall, processor = (median(each) for each in zip(*times, strict=True))
    return {"figures": {"wall_sec": wall, "processor_sec": processor}, "raw": times}


def in_small_network(script: str, rows: int = 4) -> dict[str, Any]:
    """Run a script with a library of one small operator and its ONNX file."""
    from mallorn.core.targets import parse_target
    from mallorn.workers.tvm.compile.compile_model import compile_model
    from mallorn.workers.tvm.network.graph_recipes import recipe_for

    with TemporaryDirectory() as folder:
        model, library = Path(folder, "small.onnx"), Path(folder, "small.so")
        ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, 16]) for name in "xy"]
        graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "small", ends[:1], ends[1:])
        opset = [helper.make_opsetid("", 17)]
        onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), model)
        target = parse_target({"kind": "llvm", "num-cores": 2})
        recipe = recipe_for("tuned", target)
        compile_model(str(model), None, target.text, recipe, str(library), {})
        return {"figures": run_script(script, library, model)}


def time_network(model: Path, trials: int, rounds: int) -> dict[str, Any]:
    """Tune and compile a network; return latencies by `mallorn bench` and by the runtime, in turn."""
    tuned = model.with_name(f"{model.stem}-tuned")
    options = model.with_suffix(".options")
    words = options.read_text().split() if options.is_file() else []
    if not (tuned / "manifest.json").is_file():
        run_mallorn("tune", model, "--target", "local", "--trials", trials, "--out", tuned, *words)
    library = tuned / "runtime.so"
    run_mallorn("compile", model, "--schedules", tuned, "-o", library)
    turns = []
    for _ in range(rounds):
        printed = json.loads(run_mallorn("bench", model, "--schedules", tuned, "--json"))
        turns.append((printed["latency_us"]["tuned"]["median"], *run_script(LATENCY, library, model)))
    bench_us, runtime_us, error = (median(each) for each in zip(*turns, strict=True))
    figures = {"bench_us": bench_us, "runtime_us": runtime_us, "error": error}
    return {"figures": figures, "ratio": runtime_us / bench_us, "raw": turns, "trials": trials}


def run_script(script: str, *words: object) -> Any:
    """Run a script that imports this checkout's runtime; return the JSON that it prints."""
    env = os.environ | {"PYTHONPATH": str(ROOT / "runtime")}
    return json.loads(run([sys.executable, "-P", "-c", script, *map(str, words)], env))


def run_mallorn(*words: object) -> str:
    """Run a command of this checkout; return what it prints."""
    command = [sys.executable, "-P", "-m", "mallorn", *map(str, words)]
    return run(command, os.environ | {"PYTHONPATH": str(ROOT)})


def run(command: Sequence[str], env: Mapping[str, str]) -> str:
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"exit code {done.returncode}: {' '.join(command[:6])}")
    return done.stdout


if __name__ == "__main__":
    main()
