"""A model's latency next to other programs: TVM's threads, our library's own, onnxruntime.

python -m benchmarks.contention MODEL.onnx --schedules DIR [--loads 0,1,2] [--passes 5] [--json FILE]

The same code is linked twice. Engines are timed in turn, each stopped while another runs, next
to programs that compute and stream memory (`mallorn.workers.host.background_load`). TVM's threads are
also timed with idle threads asleep (`tvm-sleeps`), and unbound too (`tvm-free`).
"""

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np

from benchmarks.hosts import describe_host
from mallorn.core.errors import InvalidRequest, MallornError
from mallorn.core.targets import parse_target
from mallorn.workers.host.background_load import run_load_programs
from mallorn.workers.interfaces.whole_model_engine import Engine
from mallorn.workers.subprocesses.errors import ChildError
from mallorn.workers.whole_model.interleaved_timing import PASSES, time_interleaved

STOCK, STOCK_SLEEPS, STOCK_FREE, OURS, ONNXRUNTIME = "tvm", "tvm-sleeps", "tvm-free", "ours", "onnxruntime"
SWITCHES: Final[Mapping[str, Mapping[str, str]]] = {
    STOCK: {},
    STOCK_SLEEPS: {"TVM_THREAD_POOL_SPIN_COUNT": "0"},
    STOCK_FREE: {"TVM_THREAD_POOL_SPIN_COUNT": "0", "TVM_BIND_THREADS": "0"},
    OURS: {},
    ONNXRUNTIME: {},
}


@dataclass(frozen=True, slots=True)
class Beside:
    """Median latencies in milliseconds by engine, next to this many other programs."""

    programs: int
    latency_ms: dict[str, float]


def main() -> None:
    """Compile the model, and time all engines at every load."""
    options = _arguments()
    try:
        results = measured(options.model, options.schedules, options.loads, options.passes)
    except (MallornError, ChildError) as error:
        sys.exit(str(error))
    for each in results:
        latencies = "  ".join(f"{name} {latency_ms:.2f} ms" for name, latency_ms in each.latency_ms.items())
        print(f"beside {each.programs}: {latencies}")
    summary = headline(results)
    if options.json:
        raw = {"headline": summary, "model": options.model.name, "loads": [asdict(each) for each in results]}
        options.json.write_text(json.dumps(raw | describe_host(), indent=1) + "\n")
    print(summary)


def headline(found: Sequence[Beside]) -> str:
    """Return each engine's latency under the last load over that under the first."""
    first, last = found[0].latency_ms, found[-1].latency_ms
    ratios = ", ".join(f"{name} {last[name] / first[name]:.1f}" for name in first)
    return f"beside {found[-1].programs} programs over beside {found[0].programs}: {ratios}"


def measured(model: Path, schedules: Path, loads: Sequence[int], passes: int) -> list[Beside]:
    """Time all engines at every load."""
    with TemporaryDirectory(prefix="mallorn-contention-") as scratch, ExitStack() as held:
        folder = Path(scratch)
        target, cores = _compile(model, schedules, folder)
        engines: dict[str, Engine] = {}
        for name, switches in SWITCHES.items():
            env = {"TVM_NUM_THREADS": str(cores), **switches}
            engines[name] = engine = held.enter_context(Engine(env=env, name=name))
            if name == ONNXRUNTIME:
                engine.load_onnxruntime(str(model.absolute()), str(folder / "inputs.npz"), cores)
            else:
                library = folder / (f"{OURS}.so" if name == OURS else f"{STOCK}.so")
                engine.load_library(str(library), target, str(folder / "inputs.npz"))
            engine.suspend()
        return [_time_under_load(programs, engines, passes) for programs in loads]


def _time_under_load(programs: int, engines: Mapping[str, Engine], passes: int) -> Beside:
    with run_load_programs(programs):
        times = time_interleaved(engines, passes)
    return Beside(programs, {name: latency.median / 1e3 for name, latency in times.items()})


def _compile(model: Path, schedules: Path, folder: Path) -> tuple[str, int]:
    """Write two libraries of the same code, and inputs; return the target and its cores."""
    from mallorn.graphc.export import compile_network, export_checks
    from mallorn.graphc.export.build_library import build_executable, export_library

    manifest = export_checks.read_manifest(schedules)
    target, network = compile_network.read_target(manifest["target"]), compile_network.read_model(str(model))
    read = partial(compile_network.import_at_point, network, manifest, target)
    mods = compile_network.import_models(read, manifest["dynamic"], manifest["recipe"]["before"], target)
    missing = compile_network.partition_tasks_by_schedule(mods, str(schedules), target)[1]
    if missing:
        raise InvalidRequest(f"{model} has tasks without a schedule in {schedules}: {', '.join(missing)}")
    scheduled_mod = compile_network.apply_schedules(
        mods, manifest["dynamic"], manifest["recipe"]["after"], target, str(schedules)
    )
    built = build_executable(scheduled_mod, target)
    built.export_library(str(folder / f"{STOCK}.so"))
    export_library(built, str(folder / f"{OURS}.so"), target, {})
    inputs = compile_network.random_inputs(network, manifest["input_shapes"], manifest["input_ranges"])
    np.savez(folder / "inputs.npz", **inputs)
    parsed = parse_target(manifest["target"])
    return parsed.text, parsed.num_cores


def _arguments() -> argparse.Namespace:
    cores = os.cpu_count() or 1
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--schedules", type=Path, required=True, help="what `mallorn tune --out` left")
    parser.add_argument(
        "--loads",
        type=lambda text: [int(one) for one in text.split(",")],
        default=sorted({0, 1, cores}),
        help="numbers of other programs",
    )
    parser.add_argument("--passes", type=int, default=PASSES, help="bursts of each engine at each load")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
