"""Compile an ONNX model with exported schedules and stock TVM: what apply.py runs.

Package versions are checked before TVM loads, so functions import the modules that load it.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from mallorn.graphc.core.graph_kind import graph_kind
from mallorn.graphc.export import export_checks

RECORDS = ("database_workload.json", "database_tuning_record.json")
SCHEDULE_SETS = ("alone", "loaded")


def main(directory: Path) -> None:
    """Compile the model of the command line with `directory`'s schedules; print a report."""
    args = parse_arguments()
    try:
        manifest = export_checks.read_manifest(directory)
        export_checks.check_before_loading_tvm(manifest, args)
        with tempfile.TemporaryDirectory() as scratch:
            records = prepare_records(directory, args.set, scratch)
            report = compile_with_records(records, scratch, manifest, args)
    except export_checks.Refused as error:
        sys.exit(f"error: {error}")
    sys.stdout.write(json.dumps(report) + "\n")


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="Compile a model with tuned schedules and stock TVM.")
    parser.add_argument("model", metavar="MODEL.onnx")
    parser.add_argument("-o", "--output", metavar="FILE.so", help="write the compiled library to this file")
    parser.add_argument("--check", action="store_true", help="compare the outputs with onnxruntime's")
    parser.add_argument(
        "--set",
        choices=SCHEDULE_SETS,
        default=SCHEDULE_SETS[0],
        help="the schedules for an idle machine (alone) or a busy one (loaded; of jobs with --contention)",
    )
    parser.add_argument(
        "--allow-missing", action="store_true", help="continue if workloads have no schedule; these are slow"
    )
    parser.add_argument(
        "--any-version", action="store_true", help="continue with another version of TVM than at tuning"
    )
    return parser.parse_args()


def prepare_records(directory: Path, schedule_set: str, scratch: str) -> str:
    """Return a directory with the set's tuning records, named as TVM expects them.

    Copies records for busy machines to `scratch`. Raises Refused if there are none.
    """
    if schedule_set == SCHEDULE_SETS[0]:
        return str(directory)
    for name in RECORDS:
        if not (directory / f"{schedule_set}_{name}").is_file():
            raise export_checks.Refused(
                f"there are no schedules for --set {schedule_set}: the job ran without --contention, "
                "or the ordinary schedules were the fastest on a busy host too",
                "leave out --set",
            )
        shutil.copy(directory / f"{schedule_set}_{name}", Path(scratch, name))
    return scratch


def compile_with_records(
    directory: str, scratch: str, manifest: Any, args: argparse.Namespace
) -> dict[str, object]:
    """Compile, time and, with --check, check the model by the records in `directory`, and report it.

    Raises Refused if this machine, the model or the schedules do not allow it.
    """
    # TVM uses half of an x86 processor's cores by default. It reads this once, at import.
    cores = manifest["target"].get("num-cores")
    os.environ.update({"TVM_NUM_THREADS": str(cores)} if cores else {})
    os.environ.setdefault("TVM_BIND_THREADS", "0")  # else it runs on cores outside its affinity
    graph_kind(manifest["target"]["kind"]).prepare_stock_tvm()
    from mallorn.graphc.export import compare_with_onnxruntime, compile_network, library_metadata
    from mallorn.graphc.export.build_library import build_library

    target = compile_network.read_target(manifest["target"])
    cannot_run = compile_network.why_it_cannot_run(target)
    if cannot_run and (args.check or not args.output):
        raise export_checks.Refused(
            cannot_run, "compile without running the model here: leave out --check, add -o model.so"
        )
    model, onnx_file = compile_network.read_model(args.model), args.model
    tuned_shapes = {"input_shapes": manifest["input_shapes"]}
    if manifest["region"]:
        model, onnx_file = compile_network.cut_region(
            model, manifest["input_shapes"], manifest["region"], f"{scratch}/region.onnx"
        )
        manifest = manifest | {"input_shapes": {}}
    input_specs = compile_network.input_specs(model, manifest["input_shapes"])
    export_checks.check_inputs(manifest, input_specs, args.model)
    read = partial(compile_network.import_at_point, model, manifest, target)
    mods = compile_network.import_models(read, manifest["dynamic"], manifest["recipe"]["before"], target)
    found_tasks, missing_tasks = compile_network.partition_tasks_by_schedule(mods, directory, target)
    export_checks.check_schedules(manifest, found_tasks, missing_tasks, args)
    report: dict[str, object] = {
        "workloads_found": len(found_tasks),
        "workloads": len(found_tasks) + len(missing_tasks),
    }
    report["threads"] = compile_network.tvm_thread_count()
    library = args.output or f"{scratch}/model.so"
    metadata = library_metadata.describe_library(
        target,
        manifest | tuned_shapes,
        input_specs,
        library_metadata.output_specs(model, manifest),
        {"model": Path(onnx_file), "source": Path(args.model), "schedules": Path(directory, RECORDS[1])},
    )
    scheduled_mod = compile_network.apply_schedules(
        mods, manifest["dynamic"], manifest["recipe"]["after"], target, directory
    )
    build_library(scheduled_mod, library, target, metadata, {})
    if cannot_run:
        return report | {"latency_ms": None, "not_run": cannot_run}
    inputs = compile_network.random_inputs(model, manifest["input_shapes"], manifest["input_ranges"])
    device = compile_network.device_of(target)
    outputs, report["latency_ms"] = compile_network.run_and_time_library(
        library, list(inputs.values()), device
    )
    if args.check:
        errors = [compare_with_onnxruntime.errors_against_onnxruntime(onnx_file, inputs, outputs)]
        errors += compile_network.measure_errors_over_range(model, onnx_file, manifest, library, device)
        report["relative_error"] = max(error for error, _ in errors)
        for error, own_error in errors:
            export_checks.check_error(manifest, error, args.model, own_error)
    return report
