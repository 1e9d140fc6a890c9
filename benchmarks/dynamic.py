"""A library for a range of shapes, timed at many sizes against fixed sizes and other engines.

python -m benchmarks.dynamic MODEL.onnx --schedules DIR [--sizes 64] [--fixed DIR ...] [--untuned]
                             [--python PYTHON] [--raw FOLDER] [--json FILE]

`range` is the library of a job with --dynamic. At its tuned points, `point` holds the same
schedules compiled for that size only: the difference is the cost of dispatch. `fixed` is a DIR
of --fixed tuned for just this size. onnxruntime, OpenVINO (from PYTHON) and `untuned`, TVM's
default build, take the file with its free dimensions. Engines are timed in turn, each stopped
while another runs. FOLDER keeps a file per size; a second run adds missing sizes.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean, median
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

from benchmarks.cells import Cells
from benchmarks.dynamic_sizes import Sizes, computed, filled_up, spread
from benchmarks.hosts import describe_host
from benchmarks.rival import Rival
from mallorn.core.errors import InvalidRequest, MallornError
from mallorn.core.targets import parse_target
from mallorn.core.values.dynamic_shapes import Dynamic
from mallorn.core.values.manifest import MANIFEST, read_manifest
from mallorn.workers.interfaces.whole_model_engine import Engine
from mallorn.workers.subprocesses.errors import ChildError
from mallorn.workers.whole_model.interleaved_timing import PASSES, Timeable, time_interleaved

RANGE, POINT, FIXED, UNTUNED = "range", "point", "fixed", "untuned"
ONNXRUNTIME, OPENVINO = "onnxruntime", "openvino_cpu"
LOAD_SEC: Final = 600.0


def main() -> None:
    """Compile the range, time all sizes, and print the headline."""
    options = _arguments()
    try:
        cells = measured(options)
    except (MallornError, ChildError) as error:
        sys.exit(str(error))
    summary = headline(cells)
    if options.json:
        raw = {"headline": summary, "model": options.model.name, "sizes": cells}
        options.json.write_text(json.dumps(raw | describe_host(), indent=1) + "\n")
    print(summary)


def measured(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Time every size that has no stored figures; return the figures of all."""
    manifest = read_manifest(options.schedules / MANIFEST)
    if manifest.dynamic is None:
        raise InvalidRequest(f"{options.schedules} is no job's for a range", hint="mallorn tune --dynamic")
    cells = Cells(options.raw)
    with TemporaryDirectory(prefix="mallorn-dynamic-") as scratch:
        setup = Given(options.model, options.schedules, options.python, options.passes)
        bench = Bench(setup, manifest.dynamic, Path(scratch), options.fixed, options.untuned)
        figures = []
        for sizes in spread(manifest.dynamic.ranges, options.sizes):
            name = "-".join([options.model.stem, *(f"{dim}{size}" for dim, size in sizes.items())])
            if name not in cells:
                cells.keep(name, bench.at(sizes))
            figures.append(cells[name])
            line = "  ".join(f"{engine} {us / 1e3:.3f} ms" for engine, us in cells[name]["us"].items())
            print(f"{sizes}: {line}", flush=True)
        return figures


def headline(cells: Sequence[Mapping[str, Any]]) -> str:
    """Describe ours over each other engine, the cost of dispatch, and the share of padding."""
    others = dict.fromkeys(name for cell in cells for name in cell["us"] if name != RANGE)
    ratios = {
        name: [cell["us"][RANGE] / cell["us"][name] for cell in cells if name in cell["us"]]
        for name in others
    }
    parts = [
        f"over {name} {geometric_mean(each):.3g} (at most {max(each):.3g}, {len(each)} sizes)"
        for name, each in ratios.items()
    ]
    dispatch = [cell["us"][RANGE] - cell["us"][POINT] for cell in cells if POINT in cell["us"]]
    parts += [f"dispatch {median(dispatch):.1f} us"] if dispatch else []
    padding = sum(cell["filled_up"] for cell in cells) / len(cells)
    return f"one library of {cells[0]['bytes'] / 1e6:.1f} MB: {', '.join(parts)}, filled up {padding:.0%}"


@dataclass(frozen=True)
class Given:
    """A model, its schedules for a range, an interpreter with OpenVINO, and bursts to time."""

    model: Path
    schedules: Path
    python: str | None
    passes: int


class Bench:
    """Holds the library of a range; compiles other libraries when a size needs them."""

    def __init__(
        self, given: Given, dynamic: Dynamic, folder: Path, fixed: Sequence[Path] = (), untuned: bool = False
    ) -> None:
        self._given, self._dynamic, self._folder = given, dynamic, folder
        self._manifest = read_manifest(given.schedules / MANIFEST)
        self._target = parse_target(self._manifest.target)
        self._range = folder / "range.so"
        self._compile_range()
        self._untuned = self._compile_untuned() if untuned else None
        self._fixed = [(each, read_manifest(each / MANIFEST).input_shapes) for each in fixed]

    def at(self, sizes: Sizes) -> dict[str, Any]:
        """Time all engines at one size; return its figures."""
        shapes, points = self._dynamic.shapes(sizes), computed(self._dynamic, sizes)
        inputs = self._write_inputs(shapes)
        libraries = {RANGE: self._range}
        if sizes in self._dynamic.points:
            libraries[POINT] = self._compile(self._given.schedules, shapes, POINT)
        for directory, tuned in self._fixed:
            if tuned == shapes:
                libraries[FIXED] = self._compile(directory, shapes, FIXED)
        if self._untuned is not None:
            libraries[UNTUNED] = self._untuned
        with ExitStack() as held:
            ours: dict[str, Timeable] = {
                name: self._library(held, name, library, inputs) for name, library in libraries.items()
            }
            times = time_interleaved(ours | self.others(held, inputs), self._given.passes)
        return {
            "sizes": sizes,
            "points": points,
            "filled_up": filled_up(points, sizes),
            "us": {name: latency.median for name, latency in times.items()},
            "bursts_us": {name: latency.to_stored_json() for name, latency in times.items()},
            "bytes": self._range.stat().st_size,
        }

    def others(self, held: ExitStack, inputs: str) -> dict[str, Timeable]:
        """Return the other engines, loaded with the same file."""
        engines: dict[str, Timeable] = {
            ONNXRUNTIME: self.onnxruntime(held, ONNXRUNTIME, self._given.model, inputs)
        }
        return engines | self.openvino(held, OPENVINO, inputs)

    def onnxruntime(self, held: ExitStack, name: str, model: Path, inputs: str) -> Engine:
        """Return onnxruntime, suspended, with a file of the model (maybe rewritten)."""
        engine = self._engine(held, name)
        engine.load_onnxruntime(str(model.absolute()), inputs, self._target.num_cores)
        engine.suspend()
        return engine

    def openvino(self, held: ExitStack, name: str, inputs: str, **env: str) -> dict[str, Rival]:
        """Return OpenVINO with these environment variables; empty without an interpreter."""
        if self._given.python is None:
            return {}
        rival = Rival(OPENVINO, self._given.python, **env)
        held.callback(rival.kill)
        rival.load(LOAD_SEC, self._given.model.absolute(), inputs, self._target.num_cores)
        rival.suspend()
        return {name: rival}

    def _library(self, held: ExitStack, name: str, library: Path, inputs: str) -> Engine:
        engine = self._engine(held, name)
        engine.load_library(str(library), self._target.text, inputs)
        engine.suspend()
        return engine

    def _engine(self, held: ExitStack, name: str) -> Engine:
        env = {"TVM_NUM_THREADS": str(self._target.num_cores)}
        return held.enter_context(Engine(env=env, name=name))

    def _compile_range(self) -> None:
        from mallorn.workers.tvm.compile.compile_model import compile_model

        given = (str(self._given.model), str(self._given.schedules), self._target.text)
        compile_model(*given, self._manifest.recipe, str(self._range), {}, self._dynamic)

    def _compile(self, schedules: Path, shapes: Mapping[str, list[int]], name: str) -> Path:
        from mallorn.workers.tvm.compile.compile_model import compile_model

        library, recipe = self._folder / f"{name}.so", read_manifest(schedules / MANIFEST).recipe
        compile_model(
            str(self._given.model), str(schedules), self._target.text, recipe, str(library), dict(shapes)
        )
        return library

    def _compile_untuned(self) -> Path:
        """Compile the file with free dimensions by TVM's default pipeline."""
        import tvm

        from mallorn.graphc.export import compile_network
        from mallorn.workers.tvm.network.run_recipe_passes import as_tvm_target

        target = as_tvm_target(self._target.text)
        model = compile_network.read_model(str(self._given.model))
        library = self._folder / "untuned.so"
        built = tvm.compile(
            compile_network.convert_to_relax(compile_network.simplify_onnx_model(model, {}), {}, target),
            target,
        )
        built.export_library(str(library))
        return library

    def _write_inputs(self, shapes: Mapping[str, list[int]]) -> str:
        from mallorn.graphc.export import compile_network

        model = compile_network.read_model(str(self._given.model))
        path = self._folder / "inputs.npz"
        np.savez(path, **compile_network.random_inputs(model, shapes, self._manifest.input_ranges))
        return str(path)


def _arguments() -> argparse.Namespace:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--schedules", type=Path, required=True, help="of a job with --dynamic")
    parser.add_argument("--sizes", type=int, default=64, help="how many, in equal steps over the range")
    parser.add_argument("--fixed", type=Path, nargs="*", default=[], help="schedules tuned for one size each")
    parser.add_argument(
        "--untuned", action="store_true", help="also TVM's default build: slow at large sizes"
    )
    parser.add_argument("--python", help="an interpreter that has OpenVINO")
    parser.add_argument("--passes", type=int, default=PASSES, help="bursts of each engine at each size")
    parser.add_argument("--raw", type=Path, default=Path("docs/results/dynamic"))
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
