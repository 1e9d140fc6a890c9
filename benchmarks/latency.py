"""The latency of whole models in every engine that is installed, in turn in one sitting.

python -m benchmarks.latency MODEL.onnx ... --schedules LABEL=DIR ... [--threads 2 1] [--python PYTHON]
                             [--rivals NAME ...] [--check FILE] [--json FILE]

DIR holds one directory a model, DIR/<model>, as `mallorn tune MODEL --out DIR/<model>` writes it; several
labels show several budgets side by side. The rivals run in the interpreter PYTHON, which has them installed
(`pip install openvino onnx2torch torch iree-base-compiler[onnx] iree-base-runtime jaxonnxruntime`); one that
is missing there or cannot read a model is left out and named. onnxruntime is timed in our own interpreter.
Engines take turns of some 150 ms each, nine times over, each in a process of its own that is stopped while
another runs. All outputs are compared with onnxruntime's. `--check` compares the ratios to onnxruntime with
those that an earlier `--json` wrote, a verdict a model. The headline is the geometric mean, over the models,
of the last label's latency over the best rival's.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.hosts import describe_host
from benchmarks.latency_report import lines, summarise, verdicts
from benchmarks.rival import NAMES, Rival
from mallorn.commands.exported import Exported, read_exported
from workers.children.child import Child
from workers.children.errors import ChildError
from workers.engine_race import Engine, race

CALL_SEC: Final = 3600.0
PASSES: Final = 9
BASE: Final = "onnxruntime"


def main() -> None:
    args = _arguments()
    labels = dict(label.split("=", 1) for label in args.schedules)
    cells = []
    for model in args.models:
        for threads in args.threads:
            cells.append(_cell(model, threads, labels, args))
            _say(f"{model.stem}, {threads} threads: done")
    found = summarise(cells, list(labels))
    if args.json:
        raw = {"benchmark": "latency", **describe_host(), **found}
        args.json.write_text(json.dumps(raw, indent=1) + "\n")
    if args.check:
        _say("\n".join(verdicts(found, json.loads(args.check.read_text()))))
    _say("\n".join(lines(found)))


def _cell(model: Path, threads: int, labels: Mapping[str, str], args: argparse.Namespace) -> dict[str, Any]:
    """One model on so many threads in every engine."""
    exported = {label: read_exported(Path(folder, model.stem), None) for label, folder in labels.items()}
    with tempfile.TemporaryDirectory(prefix="mallorn-latency-") as scratch, ExitStack() as stack:
        room = _Room(model, threads, Path(scratch), stack)
        room.make_inputs(next(iter(exported.values())))
        engines: dict[str, Engine] = {label: room.ours(label, one) for label, one in exported.items()}
        engines[BASE] = room.onnxruntime()
        engines |= room.rivals(args.rivals, args.python)
        errors = room.errors(engines)
        return {
            "model": model.stem,
            "threads": threads,
            "latency_us": race(engines, passes=PASSES),
            "errors": errors,
            "left_out": room.left_out,
            "hits": room.hits,
        }


class _Room:
    """The engines of one cell."""

    def __init__(self, model: Path, threads: int, folder: Path, stack: ExitStack) -> None:
        self._model, self._threads, self._folder, self._stack = model, threads, folder, stack
        self._graphs = self._child("workers.tvm.graphs")
        self.left_out: dict[str, str] = {}
        self.hits: dict[str, dict[str, Any]] = {}

    @property
    def _inputs(self) -> str:
        return str(self._folder / "inputs.npz")

    def make_inputs(self, exported: Exported) -> None:
        self._graphs.call(
            "make_inputs",
            CALL_SEC,
            model_path=str(self._model),
            inputs_npz=self._inputs,
            seed=0,
            input_shapes=exported.input_shapes,
            input_ranges=exported.input_ranges,
        )

    def ours(self, label: str, exported: Exported) -> Child:
        library = str(self._folder / f"{label}.so")
        found = self._graphs.call(
            "compile_model",
            CALL_SEC,
            model_path=str(self._model),
            schedules_dir=str(exported.directory),
            target=exported.target.text,
            recipe=exported.recipe,
            out_so=library,
            input_shapes=exported.input_shapes,
        )
        self.hits[label] = {key: found[key] for key in ("found", "of")}
        engine = self._child("workers.tvm.engines")
        target = exported.target.text
        engine.call("load_library", CALL_SEC, library=library, target=target, inputs_npz=self._inputs)
        return engine

    def onnxruntime(self) -> Child:
        engine = self._child("workers.tvm.engines")
        model = str(self._model)
        engine.call(
            "load_onnxruntime", CALL_SEC, model_path=model, inputs_npz=self._inputs, threads=self._threads
        )
        return engine

    def rivals(self, names: list[str], python: str) -> dict[str, Rival]:
        """Those that hold the model; the others are left out, with the reason."""
        held = {}
        for name in names:
            rival = self._stack.enter_context(Rival(name, python))
            try:
                rival.load(CALL_SEC, self._model, self._inputs, self._threads)
            except ChildError as error:
                self.left_out[name] = error.message
                continue
            held[name] = rival
            rival.suspend()
        return held

    def errors(self, engines: Mapping[str, Engine]) -> dict[str, float]:
        """Every engine's relative error against onnxruntime."""
        files = {name: str(self._folder / f"{name}-outputs.npz") for name in engines}
        for name, engine in engines.items():
            with _awake(engine):
                engine.call("save_outputs", CALL_SEC, outputs_npz=files[name])
        return {
            name: self._graphs.call("compare_models", CALL_SEC, outputs_npz=file, expected_npz=files[BASE])
            for name, file in files.items()
            if name != BASE
        }

    def _child(self, module: str) -> Child:
        return self._stack.enter_context(Child(module, env={"TVM_NUM_THREADS": str(self._threads)}))


@contextmanager
def _awake(engine: Engine) -> Iterator[None]:
    engine.resume()
    yield
    engine.suspend()


def _arguments() -> argparse.Namespace:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--schedules", nargs="+", required=True, metavar="LABEL=DIR")
    parser.add_argument("--threads", nargs="+", type=int, default=[2, 1])
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has the rivals")
    parser.add_argument("--rivals", nargs="*", default=list(NAMES), choices=NAMES)
    parser.add_argument("--check", type=Path, metavar="FILE", help="raw figures to compare with")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
