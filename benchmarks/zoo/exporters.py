"""Networks of several exporters: which come in, compile as a whole, and are right beside onnxruntime.

python -m benchmarks.zoo.exporters FOLDER [NAME ...] [--json docs/results/zoo_exporters.json]

FOLDER has a folder of ONNX files for each exporter, named after it. `benchmarks/zoo/torch_side` writes
`dynamo` (torch's default) and `script`, `benchmarks/zoo/tensorflow_side` writes `tf2onnx`. Each network is
imported, cut into tasks, compiled with the recipe `tuned` and without schedules, and run once on random
inputs. A row is stored as soon as it is known; a second run measures only what is missing. The headline is
how many networks come in and are right.
"""

import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np
import onnx
import onnxruntime
import tvm

from benchmarks.hosts import describe_host
from benchmarks.model_folder import files_of, folder_parser
from benchmarks.zoo.row import RIGHT
from mallorn.core.errors import MallornError
from mallorn.core.targets import Target
from mallorn.graphc.export.compile_network import run_library_once
from mallorn.workers.device.detect_host import detect_target
from mallorn.workers.interfaces.model_compiler import ModelCompiler
from mallorn.workers.tvm.network.graph_recipes import recipe_for

RAW: Final = Path("docs/results/zoo_exporters.json")
SECONDS: Final = 1800.0  # that each step may take, on a busy host


@dataclass(frozen=True, slots=True)
class Row:
    """The result of one file; `error` is the largest, relative to the output's largest number."""

    network: str
    exporter: str
    opset: int
    seconds: float = 0.0
    is_in: bool = False
    is_right: bool = False
    tasks: int = 0
    error: float | None = None
    refused: str = ""


def main() -> None:
    """Measure the files without a row, and print how many networks are right."""
    parser = folder_parser(__doc__)
    parser.add_argument("--json", type=Path, default=RAW)
    args = parser.parse_args()
    rows = [Row(**row) for row in json.loads(args.json.read_text())["rows"]] if args.json.exists() else []
    done, target = {(row.exporter, row.network) for row in rows}, detect_target()
    for path in files_of(args, "*/*.onnx"):
        if (path.parent.name, path.stem) in done:
            continue
        rows.append(_row(path, target))
        print(json.dumps(asdict(rows[-1])), flush=True)
        stored = {"headline": headline(rows), "rows": [asdict(row) for row in rows]} | describe_host()
        args.json.write_text(json.dumps(stored, indent=1) + "\n")
    print(headline(rows))


def headline(rows: Sequence[Row]) -> str:
    """Return how many networks of each exporter come in and are right."""
    exporters = sorted({row.exporter for row in rows})
    of = {name: [row.is_right for row in rows if row.exporter == name] for name in exporters}
    return ", ".join(
        f"{name}: {sum(of[name])} of {len(of[name])} come in and are right" for name in exporters
    )


def _row(path: Path, target: Target) -> Row:
    opsets = {each.domain: each.version for each in onnx.load(path, load_external_data=False).opset_import}
    row, started = Row(path.stem, path.parent.name, opsets.get("", 0)), time.monotonic()
    found: dict[str, object] = {}
    try:
        _compile_and_compare(path, target, found)
    except MallornError as error:
        found["refused"] = error.message
    except (RuntimeError, ValueError) as error:  # of TVM's runtime, or other outputs than onnxruntime's
        found["refused"] = f"{type(error).__name__}: {error}"
    return Row(**asdict(row) | found | {"seconds": round(time.monotonic() - started, 1)})


def _compile_and_compare(path: Path, target: Target, found: dict[str, object]) -> None:
    """Add the row's values as soon as each is known."""
    recipe = recipe_for("tuned", target)
    with ModelCompiler() as child, tempfile.TemporaryDirectory(prefix="zoo-") as folder:
        library, arrays = f"{folder}/model.so", f"{folder}/inputs.npz"
        extraction = child.extract.call_with_limit(SECONDS, str(path), target.text, recipe, {})
        found |= {"is_in": True, "tasks": len(extraction.tasks)}
        child.compile_model.call_with_limit(SECONDS, str(path), None, target.text, recipe, library, {})
        names = child.make_inputs(str(path), arrays, 0, {}, extraction.graph.input_ranges)
        inputs = dict(np.load(arrays))
        ours = run_library_once(library, [inputs[name] for name in names], tvm.cpu())
    theirs = onnxruntime.InferenceSession(path).run(None, inputs)
    error = max(_error(*pair) for pair in zip(ours, theirs, strict=True))
    found |= {"error": error, "is_right": error <= RIGHT}


def _error(ours: np.ndarray, theirs: np.ndarray) -> float:
    if ours.shape != theirs.shape:
        raise ValueError(f"an output has the shape {ours.shape}, onnxruntime's {theirs.shape}")
    wide = theirs.astype("float64")
    largest = float(np.abs(wide).max(initial=0.0))
    return float(np.abs(ours - wide).max(initial=0.0)) / (largest or 1.0)


if __name__ == "__main__":
    main()
