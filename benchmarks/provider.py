"""Figures of onnxruntime's provider: microseconds a call beside onnxruntime alone and mallorn_runtime.Session.

python -m benchmarks.provider FOLDER [NAME ...] [--raw docs/results/provider] [--seconds 20] [--calls 10000]

FOLDER has ONNX files, and for each NAME.onnx a directory NAME-tuned with a library. In one process the three
take turns, each some calls at a time, with the same inputs: as numpy allocates them, and aligned to 64 bytes.
`grown_bytes` is what the process grows by over `--calls` further calls through the provider. `spinning` has the
times of a session whose nodes are computed half in the library and half in onnxruntime, with onnxruntime's
idle threads spinning (its default) and not. Each part is one raw file; a second run adds missing ones. The
headline is the time through the provider as a share of that of mallorn_runtime.Session.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.cells import Cells
from benchmarks.hosts import describe_host
from benchmarks.model_folder import files_of, folder_parser

ROOT: Final = Path(__file__).parents[1]
RAW: Final = Path("docs/results/provider")
SHOWN: Final = ("microseconds", "ratio", "grown_bytes")
#: Runs in a process of its own, and prints JSON.
TURNS: Final = """
import gc, json, sys, time
import numpy as np, onnxruntime
import mallorn_runtime.onnxruntime as mallorn
from pathlib import Path
from mallorn_runtime import Session, empty
model, tuned, library, seconds, calls = sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4]), int(sys.argv[5])
mallorn.LIBRARY = Path(library)
session = Session(Path(tuned, "model.so"))
rng, inputs = np.random.default_rng(0), {}
for spec in session.inputs:
    low, high = session.meta["input_ranges"].get(spec.name, (0, 2))
    is_float = np.dtype(spec.dtype).kind == "f"
    shape = [eval(str(size), {name: most for name, (_, most) in session.ranges.items()}) for size in spec.shape]
    inputs[spec.name] = np.asarray(rng.random(shape) if is_float else rng.integers(low, high, shape), spec.dtype)
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
    "onnxruntime": onnxruntime.__version__,
}))
"""


def main() -> None:
    """Measure what has no raw file yet, and print the figures."""
    parser = folder_parser(__doc__)
    parser.add_argument("--raw", type=Path, default=RAW)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--calls", type=int, default=10_000)
    args = parser.parse_args()
    cells = Cells(args.raw)
    library = compile_provider()
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


def run_script(script: str, *words: object) -> Any:
    """Run a script that imports this checkout's runtime; return the JSON that it prints."""
    env = os.environ | {"PYTHONPATH": str(ROOT / "runtime")}
    command = [sys.executable, "-P", "-c", script, *map(str, words)]
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"exit code {done.returncode}: {command[3:]}")
    return json.loads(done.stdout)


if __name__ == "__main__":
    main()
