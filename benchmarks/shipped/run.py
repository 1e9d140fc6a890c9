"""What one shipped file gives: whether it comes in, is right, and how long calls take beside rivals."""

import json
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import onnxruntime

from benchmarks.hosts import describe_host
from benchmarks.rival import Rival
from benchmarks.shipped.corpus import ShippedFile
from benchmarks.shipped.samples import make_inputs
from mallorn.core.errors import InvalidModel
from mallorn.graphc.export.compare_with_onnxruntime import errors_against_onnxruntime
from mallorn.workers.interfaces.model_compiler import ModelCompiler
from mallorn.workers.subprocesses.errors import ChildError, ChildTimeout
from mallorn.workers.tvm.network.check_onnx_model import read_model
from mallorn.workers.tvm.network.graph_recipes import TUNED
from mallorn.workers.tvm.network.outside_nodes import divide
from mallorn.workers.tvm.network.run_recipe_passes import as_tvm_target
from mallorn.workers.whole_model.interleaved_timing import time_interleaved

ROOT: Final = Path(__file__).parents[2]
JOB_SEC: Final = 900.0
LOAD_SEC: Final = 300.0
TARGET: Final = '{"kind":"llvm","mcpu":"haswell","num-cores":2}'  # of imports alone
PASSES: Final = 9
OF_FINISH: Final = ("latency_us", "error_vs_onnxruntime", "skipped_steps", "conditions", "seconds")
TUNED_ROW: Final = "tuned.json"  # what a job gave, beside what it delivered
OURS, PROVIDER, ONNXRUNTIME, OPENVINO = "mallorn", "provider", "onnxruntime", "openvino"
DTYPES: Final = {
    "tensor(float)": "float32",
    "tensor(float16)": "float16",
    "tensor(double)": "float64",
    "tensor(int64)": "int64",
    "tensor(int32)": "int32",
    "tensor(uint8)": "uint8",
    "tensor(bool)": "bool",
    "tensor(string)": "str",
}
# What a file shows of itself, in the order of the table.
COMES_IN, REFUSED, LATE = "comes in", "refused", "late"


def import_file(file: ShippedFile, folder: Path, graphs: ModelCompiler) -> dict[str, Any]:
    """Return whether a child imports the file and extracts its tasks, and else its message."""
    shapes = {name: list(spec["shape"]) for name, spec in file.inputs.items()}
    started_sec = time.monotonic()
    outcome, message = COMES_IN, ""
    try:
        graphs.extract.call_with_limit(LOAD_SEC, str(file.path(folder).absolute()), TARGET, TUNED, shapes)
    except InvalidModel as error:
        outcome, message = REFUSED, error.message
    except ChildTimeout:
        outcome, message = LATE, f"no end in {LOAD_SEC:.0f} s"
    except ChildError as error:
        outcome, message = REFUSED, error.message
    seconds = round(time.monotonic() - started_sec, 1)
    row = {"outcome": outcome, "message": message[:300], "seconds": seconds}
    return row if outcome == COMES_IN else row | {"outside": _outside(file, folder)}


def _outside(file: ShippedFile, folder: Path) -> str:
    """Return how many nodes of a refused file cannot be imported one by one, and their operators."""
    shapes = {name: spec["shape"] for name, spec in file.inputs.items()}
    try:
        parts = divide(read_model(file.path(folder)), shapes, as_tvm_target(TARGET))
    except (InvalidModel, ValueError) as error:
        return f"not divided: {error}"[:300]
    names = Counter(each.node.op_type for each in parts.outside).most_common()
    inside = [len(region.graph.node) for region in parts.regions]
    return f"regions of {inside} nodes; outside: {', '.join(f'{times} {name}' for name, times in names)}"


def tune_file(file: ShippedFile, folder: Path, kept: Path, data: Path) -> dict[str, Any]:
    """Tune a file without trials, on inputs that mean something; keep what came out in a folder."""
    own = kept / file.name
    shutil.rmtree(own, ignore_errors=True)
    own.mkdir(parents=True)
    (own / "model.onnx").symlink_to(file.path(folder).resolve())
    inputs = make_inputs(file, declared_dtypes(own / "model.onnx"), folder / "samples")
    np.savez(own / "inputs.npz", allow_pickle=False, **inputs)
    row = _tune(file, own, data)
    (own / TUNED_ROW).write_text(json.dumps(row | describe_host()) + "\n")
    return row


def time_file(
    file: ShippedFile, python: Mapping[str, str], kept: Path, provider: Path, threads: int
) -> dict[str, Any]:
    """Check what was kept of a file on its inputs, called by `mallorn_runtime.Session` and through
    onnxruntime's provider, and time both beside onnxruntime and OpenVINO, in turn. The rivals get
    the file with fixed sizes. Of a model compiled in part there is no session of the whole."""
    own = kept / file.name
    row: dict[str, Any] = json.loads((own / TUNED_ROW).read_text())
    finish = row.get("report", {}).get("report") or {}
    kept_fields = {name: row[name] for name in ("seconds", "outcome", "message", "exit") if name in row}
    row = kept_fields | {"finish": {name: finish[name] for name in OF_FINISH if name in finish}}
    library = own / "tuned" / "model.so"
    if not library.exists():
        return row
    with np.load(own / "inputs.npz") as archive:
        inputs = {name: archive[name] for name in archive.files}
    model, fixed = own / "model.onnx", fix_sizes(own / "model.onnx", inputs, own / "fixed.onnx")
    paths = {OURS: library, PROVIDER: model, ONNXRUNTIME: fixed, OPENVINO: fixed}
    if json.loads((own / "tuned" / "manifest.json").read_text()).get("region"):
        del paths[OURS]
    with ExitStack() as stack:
        engines: dict[str, Rival] = {}
        row |= {"left_out": {}, "errors": {}, "failures": {}}
        for name, path in paths.items():
            rival = Rival(
                f"{name}_cpu",
                python.get(name, sys.executable),
                PYTHONPATH=str(ROOT),
                MALLORN_PROVIDER=str(provider),
            )
            stack.callback(rival.kill)
            try:
                rival.load(LOAD_SEC, path, str(own / "inputs.npz"), threads)
                engines[name] = rival
            except ChildError as error:
                row["left_out"][name] = error.message[:300]
        for name in (OURS, PROVIDER):
            if name in engines:
                _compare(row, name, engines[name], model, inputs, own / "outputs.npz")
        times = time_interleaved(engines, passes=PASSES)
        row["latency_us"] = {name: latency.to_stored_json() for name, latency in times.items()}
    return row


def _tune(file: ShippedFile, own: Path, data: Path) -> dict[str, Any]:
    tuned = own / "tuned"
    command = ["tune", str(own / "model.onnx"), *_shapes(file), "--inputs", str(own / "inputs.npz")]
    command += ["--out", str(tuned), "--json", "--data", str(data)]
    started_sec = time.monotonic()
    try:
        answer = _mallorn(command, JOB_SEC)
    except subprocess.TimeoutExpired:
        return {"outcome": LATE, "message": f"no end in {JOB_SEC:.0f} s", "seconds": JOB_SEC}
    row: dict[str, Any] = {"seconds": round(time.monotonic() - started_sec, 1), "exit": answer.returncode}
    if not (tuned / "model.so").exists():
        return row | {"outcome": REFUSED, "message": _last_words(answer.stderr)}
    report = json.loads(answer.stdout)
    return row | {"outcome": COMES_IN, "message": "", "report": report}


def _compare(
    row: dict[str, Any],
    name: str,
    ours: Rival,
    model: Path,
    inputs: Mapping[str, Any],
    outputs_file: Path,
) -> None:
    """Add to a row the error of one way to call our code, onnxruntime's own if the file is quantised,
    and dull outputs.

    An output is dull if all its numbers are equal: the comparison says little about it.
    """
    try:
        ours.save_outputs(str(outputs_file))
    except ChildError as failure:
        row["failures"][name] = failure.message[:300]
        return
    with np.load(outputs_file) as archive:
        outputs = [archive[name] for name in archive.files]
    row["errors"][name], row["own_error"] = errors_against_onnxruntime(str(model), inputs, outputs)
    row["outputs"] = len(outputs)
    row["dull_outputs"] = [
        index for index, array in enumerate(outputs) if array.size > 1 and (array == array.flat[0]).all()
    ]


def declared_dtypes(model: Path) -> dict[str, str]:
    """Return the types of a file's inputs as numpy names them."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    return {spec.name: DTYPES[spec.type] for spec in session.get_inputs()}


def fix_sizes(model: Path, inputs: Mapping[str, Any], into: Path) -> Path:
    """Write the file with the sizes of these inputs in place of free dimensions, and return its path."""
    proto = onnx.load(str(model))
    for value in proto.graph.input:
        if value.name in inputs:
            for dim, size in zip(value.type.tensor_type.shape.dim, inputs[value.name].shape, strict=True):
                dim.dim_value = size
    for value in proto.graph.output:
        for dim in value.type.tensor_type.shape.dim:
            dim.Clear()
    del proto.graph.value_info[:]
    onnx.save(proto, str(into))
    return into


@contextmanager
def running_service(data: Path) -> Iterator[None]:
    """Run the service on a data directory while the block lasts, so that jobs need not start one."""
    process = subprocess.Popen(
        [sys.executable, "-m", "mallorn", "up", "--data", str(data)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def _shapes(file: ShippedFile) -> list[str]:
    """Return the options that name the shapes of the inputs."""
    words = []
    for name, spec in file.inputs.items():
        if spec["shape"]:
            words += ["--input-shape", f"{name}:{','.join(map(str, spec['shape']))}"]
    return words


def _mallorn(words: list[str], limit_sec: float) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mallorn", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=limit_sec, check=False)


def _last_words(text: str) -> str:
    """Return the error of a command's output, without its hint."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return (errors or lines or ["no message"])[-1][:300]
