"""Compile an ONNX model with the schedules beside this file, using stock TVM alone.

python -m venv tvm-venv && tvm-venv/bin/pip install -r requirements.txt
tvm-venv/bin/python apply.py MODEL.onnx [-o model.so] [--check] [--version loaded]

--check compares with onnxruntime; --version loaded takes what is fastest beside other programs.

Exits with 1 and a sentence if the model is not the one that was tuned, or if something is missing.
"""

import argparse
import importlib
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RECORDS = ("database_workload.json", "database_tuning_record.json")
VERSIONS = ("alone", "loaded")


def beside(name: str) -> Any:
    """Import a file beside this one; not at the top, because versions are checked before TVM is loaded."""
    return importlib.import_module(f"{__package__}.{name}" if __package__ else name)


checks = beside("checks")


def main() -> None:
    """Check, compile, count, time, and compare if asked."""
    args = arguments()
    try:
        manifest = checks.read_manifest(HERE)
        checks.before_tvm_is_loaded(manifest, args)
        report = apply(manifest, args)
    except checks.Refused as error:
        sys.exit(f"error: {error}")
    sys.stdout.write(json.dumps(report) + "\n")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Compile a model with tuned schedules and stock TVM.")
    parser.add_argument("model", metavar="MODEL.onnx")
    parser.add_argument("-o", "--output", metavar="FILE.so", help="keep the compiled library here")
    parser.add_argument("--check", action="store_true", help="compare its numbers with onnxruntime's")
    parser.add_argument(
        "--version",
        choices=VERSIONS,
        default=VERSIONS[0],
        help="what is fastest alone, or beside other programs (of jobs with --contention)",
    )
    parser.add_argument(
        "--allow-missing", action="store_true", help="go on where workloads have no schedule; they are slow"
    )
    parser.add_argument(
        "--any-version", action="store_true", help="go on with other versions of TVM than it was tuned with"
    )
    return parser.parse_args()


def apply(manifest: Any, args: argparse.Namespace) -> dict[str, object]:
    """Compile and time the model; the report. Raises Refused."""
    with tempfile.TemporaryDirectory() as scratch:
        return apply_records(records(args.version, scratch), scratch, manifest, args)


def records(version: str, scratch: str) -> str:
    """Where the version's records lie under the names that TVM looks for. Raises Refused."""
    if version == VERSIONS[0]:
        return str(HERE)
    for name in RECORDS:
        if not (HERE / f"{version}_{name}").is_file():
            raise checks.Refused(
                "there is no version for busy machines here: the job had no --contention, or none was faster",
                "leave --version",
            )
        shutil.copy(HERE / f"{version}_{name}", Path(scratch, name))
    return scratch


def apply_records(directory: str, scratch: str, manifest: Any, args: argparse.Namespace) -> dict[str, object]:
    """The same with the records of a directory."""
    # By default TVM takes half of an x86 processor's cores. It reads this once, at import.
    cores = manifest["target"].get("num-cores")
    os.environ.update({"TVM_NUM_THREADS": str(cores)} if cores else {})
    os.environ.setdefault("TVM_BIND_THREADS", "0")  # else it leaves the processors that it was started on
    compiling, machine = beside("compiling"), beside("machine")
    target = machine.read_target(manifest["target"])
    cannot_run = machine.why_it_cannot_run(target)
    if cannot_run and (args.check or not args.output):
        raise checks.Refused(cannot_run, "compile without running it here: leave --check, add -o model.so")
    model = compiling.read_model(args.model)
    checks.same_inputs(manifest, compiling.input_specs(model, manifest["input_shapes"]), args.model)
    mods = compiling.import_models(model, manifest, target)
    found, missing = compiling.count_hits(mods, directory, target)
    checks.all_found(manifest, found, missing, args)
    report: dict[str, object] = {"workloads_found": len(found), "workloads": len(found) + len(missing)}
    report["threads"] = machine.threads()
    library = args.output or f"{scratch}/model.so"
    built = compiling.build(mods, manifest["dynamic"], manifest["recipe"]["after"], target, directory)
    compiling.export(built, library, target)
    if cannot_run:
        return report | {"latency_ms": None, "not_run": cannot_run}
    inputs = compiling.random_inputs(model, manifest["input_shapes"], manifest["input_ranges"])
    device = machine.device_of(target)
    outputs, report["latency_ms"] = compiling.run(library, list(inputs.values()), device)
    if args.check:
        errors = [compiling.relative_error(args.model, inputs, outputs)]
        errors += compiling.errors_between(model, args.model, manifest, library, device)
        report["relative_error"] = max(errors)
        checks.small_error(manifest, max(errors), args.model)
    return report


if __name__ == "__main__":
    main()
