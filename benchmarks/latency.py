"""The latency of whole models in every engine that is installed, in turn in one sitting.

python -m benchmarks.latency MODEL.onnx ... --schedules LABEL=DIR ... [--threads 2 1]
                             [--python PYTHON RIVAL=PYTHON ...] [--rivals NAME ...]
                             [--check FILE] [--json FILE]

DIR holds one directory a model, DIR/<model>, as `mallorn tune MODEL --out DIR/<model>` writes it; several
labels show several budgets side by side. The rivals run in the interpreter PYTHON, which has them installed
(`pip install openvino onnx2torch torch iree-base-compiler[onnx] iree-base-runtime jaxonnxruntime "jax<0.5"`);
one that is missing there or cannot read a model is left out and named. RIVAL=PYTHON gives one an interpreter
of its own, since they need different versions of torch: `ncnn pnnx`, `MNN`, `executorch onnx2torch`,
`zentorch ai-edge-litert litert-torch onnx2torch torch==2.14.*`. onnxruntime is timed in our own
interpreter. Engines take turns of some 150 ms each, nine times over, each in a process of its own that is
stopped while another runs. All outputs are compared with onnxruntime's. `--check` compares the ratios to
onnxruntime with those that an earlier `--json` wrote, a verdict a model. The headline is the geometric mean,
over the models, of the last label's latency over the best rival's.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from benchmarks.hosts import describe_host
from benchmarks.latency_report import BASE, lines, summarise, verdicts
from benchmarks.rival import NAMES, Rival
from cli.schedule_directory import local_model, onnxruntime_runs, read_exported
from mallorn.core.errors import Unavailable
from workers.interfaces.whole_model_engine import Engine
from workers.subprocesses.errors import ChildError
from workers.whole_model.compiled_model import WholeModel
from workers.whole_model.interleaved_timing import time_interleaved

LOAD_SEC: Final = 3600.0  # some rivals tune themselves while they load
PASSES: Final = 9


def main() -> None:
    args = _arguments()
    labels = dict(label.split("=", 1) for label in args.schedules)
    cells = []
    for model in args.models:
        for threads in args.threads:
            cells.append(_cell(model, threads, labels, args))
            print(f"{model.stem}, {threads} threads: done", flush=True)
    found = summarise(cells, list(labels))
    if args.json:
        raw = {"benchmark": "latency", **describe_host(), **found}
        args.json.write_text(json.dumps(raw, indent=1) + "\n")
    if args.check:
        print("\n".join(verdicts(found, json.loads(args.check.read_text()))))
    print("\n".join(lines(found)), flush=True)


def _cell(model: Path, threads: int, labels: Mapping[str, str], args: argparse.Namespace) -> dict[str, Any]:
    """One model on so many threads in every engine."""
    exported = {label: read_exported(Path(folder, model.stem), None) for label, folder in labels.items()}
    with ExitStack() as stack:
        models = {
            label: replace(stack.enter_context(local_model(model, one, threads)), room=None)
            for label, one in exported.items()
        }
        hits = {
            label: whole.compile(exported[label].directory.absolute(), _library(whole))
            for label, whole in models.items()
        }
        engines: dict[str, Engine | Rival] = {
            label: loaded(stack, whole, label, _library(whole)) for label, whole in models.items()
        }
        label, whole = next(iter(models.items()))
        if not onnxruntime_runs(exported[label]):
            raise Unavailable(
                "onnxruntime, which all are compared with, cannot run this", hint="a CPU target"
            )
        engines[BASE] = loaded(stack, whole, BASE, None)
        inputs = str(whole.inputs)
        held, left_out = rivals_of(args.rivals, args.python, model.absolute(), inputs, threads, stack)
        return {
            "model": model.stem,
            "threads": threads,
            **compared(engines | held, whole, BASE),
            "left_out": left_out,
            "hits": {label: {"found": found.found, "of": found.of} for label, found in hits.items()},
        }


def _library(model: WholeModel) -> Path:
    return model.folder / "tuned.so"


def compared(engines: Mapping[str, Engine | Rival], whole: WholeModel, base: str) -> dict[str, Any]:
    """Errors of all outputs against those of one engine, and latencies in turn."""
    for name, engine in engines.items():
        engine.save_outputs(str(whole.outputs(name)))
    expected = whole.outputs(base)
    times = time_interleaved(engines, passes=PASSES)
    return {
        "errors": {name: whole.error(whole.outputs(name), expected) for name in engines if name != base},
        "latency_us": {name: latency.stored() for name, latency in times.items()},
    }


def loaded(stack: ExitStack, model: WholeModel, name: str, library: Path | None) -> Engine:
    """An engine that holds a library, or the model itself."""
    engine = stack.enter_context(model.engine(name))
    model.begin_loading(engine, library).wait()
    return engine


def rivals_of(
    names: Sequence[str], pythons: Sequence[str], model: Path, inputs: str, threads: int, stack: ExitStack
) -> tuple[dict[str, Rival], dict[str, str]]:
    """Those that hold the model, and why the others do not."""
    held: dict[str, Rival] = {}
    left_out: dict[str, str] = {}
    for name in names:
        rival = Rival(name, python_of(name, pythons))
        stack.callback(rival.kill)
        try:
            rival.load(LOAD_SEC, model, inputs, threads)
        except ChildError as error:
            left_out[name] = error.message
        else:
            held[name] = rival
    return held, left_out


def python_of(rival: str, pythons: Sequence[str]) -> str:
    """Its own interpreter, or the last one that is for all, or ours."""
    named = dict(text.split("=", 1) for text in pythons if "=" in text)
    common = [sys.executable, *(text for text in pythons if "=" not in text)]
    return named.get(rival, common[-1])


def _arguments() -> argparse.Namespace:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--schedules", nargs="+", required=True, metavar="LABEL=DIR")
    parser.add_argument("--threads", nargs="+", type=int, default=[2, 1])
    parser.add_argument(
        "--python",
        nargs="+",
        default=[sys.executable],
        metavar="PYTHON",
        help="the interpreter that has the rivals; RIVAL=PYTHON for one of them",
    )
    parser.add_argument("--rivals", nargs="*", default=list(NAMES), choices=NAMES)
    parser.add_argument("--check", type=Path, metavar="FILE", help="raw figures to compare with")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
