"""Latency of whole models in every installed engine, timed in turn.

python -m benchmarks.latency MODEL.onnx ... --schedules LABEL=DIR ... [--threads 2 1]
                             [--python PYTHON RIVAL=PYTHON ...] [--rivals NAME ...]
                             [--check FILE] [--json FILE]

DIR holds one directory per model, DIR/<model>, as `mallorn tune MODEL --out DIR/<model>`
writes it; several labels compare several budgets. Rivals run in the interpreter PYTHON, which
has them installed (`pip install openvino onnx2torch torch iree-base-compiler[onnx]
iree-base-runtime jaxonnxruntime "jax<0.5"`); missing and failing rivals are skipped and
reported. RIVAL=PYTHON gives one its own, since versions of torch differ: `ncnn pnnx`, `MNN`,
`executorch onnx2torch`, `zentorch ai-edge-litert litert-torch onnx2torch torch==2.14.*`.
onnxruntime runs in our own interpreter. Engines take nine turns of some 150 ms in their own
processes, stopped while another runs. All outputs are compared with onnxruntime's. `--check`
compares ratios to onnxruntime with those of an earlier `--json`, per model. The headline is
the last label's latency over the best rival's, a geometric mean over models.
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
from mallorn.cli.schedule_directory import can_run_onnxruntime, local_model, read_schedule_directory
from mallorn.core.errors import Unavailable
from mallorn.workers.interfaces.whole_model_engine import Engine
from mallorn.workers.subprocesses.errors import ChildError
from mallorn.workers.whole_model.compiled_model import WholeModel
from mallorn.workers.whole_model.interleaved_timing import time_interleaved

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
    result = summarise(cells, list(labels))
    if args.json:
        raw = {"benchmark": "latency", **describe_host(), **result}
        args.json.write_text(json.dumps(raw, indent=1) + "\n")
    if args.check:
        print("\n".join(verdicts(result, json.loads(args.check.read_text()))))
    print("\n".join(lines(result)), flush=True)


def _cell(model: Path, threads: int, labels: Mapping[str, str], args: argparse.Namespace) -> dict[str, Any]:
    """Time one model with this number of threads in every engine."""
    exported = {
        label: read_schedule_directory(Path(folder, model.stem), None) for label, folder in labels.items()
    }
    with ExitStack() as stack:
        models = {
            label: replace(stack.enter_context(local_model(model, export, threads)), room=None)
            for label, export in exported.items()
        }
        hits = {
            label: whole.compile(exported[label].directory.absolute(), _library(whole))
            for label, whole in models.items()
        }
        engines: dict[str, Engine | Rival] = {
            label: loaded(stack, whole, label, _library(whole)) for label, whole in models.items()
        }
        label, whole = next(iter(models.items()))
        if not can_run_onnxruntime(exported[label]):
            raise Unavailable(
                "onnxruntime, which all are compared with, cannot run this", hint="a CPU target"
            )
        engines[BASE] = loaded(stack, whole, BASE, None)
        inputs = str(whole.inputs_file)
        rivals, left_out = rivals_of(args.rivals, args.python, model.absolute(), inputs, threads, stack)
        return {
            "model": model.stem,
            "threads": threads,
            **compared(engines | rivals, whole, BASE),
            "left_out": left_out,
            "hits": {label: {"found": hit.found, "of": hit.of} for label, hit in hits.items()},
        }


def _library(model: WholeModel) -> Path:
    return model.folder / "tuned.so"


def compared(engines: Mapping[str, Engine | Rival], whole: WholeModel, base: str) -> dict[str, Any]:
    """Return errors of outputs against those of engine `base`, and latencies."""
    for name, engine in engines.items():
        engine.save_outputs(str(whole.outputs_file(name)))
    expected = whole.outputs_file(base)
    times = time_interleaved(engines, passes=PASSES)
    return {
        "errors": {
            name: whole.compute_output_error(whole.outputs_file(name), expected)
            for name in engines
            if name != base
        },
        "latency_us": {name: latency.to_stored_json() for name, latency in times.items()},
    }


def loaded(stack: ExitStack, model: WholeModel, name: str, library: Path | None) -> Engine:
    """Start an engine and load the library, or the model itself without one."""
    engine = stack.enter_context(model.engine(name))
    model.begin_loading(engine, library)()
    return engine


def rivals_of(
    names: Sequence[str], pythons: Sequence[str], model: Path, inputs: str, threads: int, stack: ExitStack
) -> tuple[dict[str, Rival], dict[str, str]]:
    """Return the rivals that loaded the model, and the errors of the others."""
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
    """Return the rival's interpreter: its own, else the last general one, else ours."""
    own = dict(text.split("=", 1) for text in pythons if "=" in text)
    common = [sys.executable, *(text for text in pythons if "=" not in text)]
    return own.get(rival, common[-1])


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
