"""Main module of the child process that imports and compiles models and reads schedules."""

import os
import re
import zipfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mallorn.core.errors import InvalidModel, UnknownName
from mallorn.core.values.dataset import ScheduleScripts
from mallorn.graphc.core.graph_pass import Report
from mallorn.graphc.core.pass_registry import OWN_PASSES
from mallorn.graphc.core.pass_runner import run_passes
from mallorn.graphc.export import compile_network as stock
from mallorn.graphc.export.compare_with_onnxruntime import compute_values
from mallorn.graphc.onnx.read_with_weights_on_disk import embed_weights
from mallorn.graphc.phases import BEFORE_SCHEDULES, pass_table
from mallorn.workers.host.code_digest import refuse_if_code_changed
from mallorn.workers.interfaces.model_compiler import (
    ModelCompiler,
    PassReport,
    Ranges,
    RecipeReport,
    Shapes,
    Signature,
)
from mallorn.workers.measure.compare_outputs import compare_models, compare_outputs, find_constant_outputs
from mallorn.workers.sandbox.sandbox import OFF
from mallorn.workers.subprocesses.child_main import REACHED_VARIABLE
from mallorn.workers.subprocesses.serve_calls import serve
from mallorn.workers.subprocesses.typed_method import collect_handlers
from mallorn.workers.tvm.compile.compile_model import compile_default, compile_model, import_ahead
from mallorn.workers.tvm.compile.explain_kernels import explain_kernels
from mallorn.workers.tvm.compile.program_evaluator import ProgramEvaluator, redirect_folding
from mallorn.workers.tvm.compile.reference_outputs import build_whole_program, write_reference
from mallorn.workers.tvm.network.check_onnx_model import read_model
from mallorn.workers.tvm.network.extract_tasks import extract
from mallorn.workers.tvm.network.extract_tasks_of_range import extract_range
from mallorn.workers.tvm.network.import_onnx_to_relax import load_network
from mallorn.workers.tvm.network.outside_nodes import cut_region, find_region
from mallorn.workers.tvm.network.remaining_copies import count_remaining_copies
from mallorn.workers.tvm.network.run_recipe_passes import PassFailed, as_tvm_target, name_pass_in_errors
from mallorn.workers.tvm.programs.parsed_program_cache import parse_module, parse_tvm_target
from mallorn.workers.tvm.records import tuning_database
from mallorn.workers.tvm.records.check_dataset import next_rows, open_dataset

MOST_DRAWS: Final = 16
INPUTS_HINT: Final = (
    "numpy.savez(FILE, NAME=array, ...); of several draws: numpy.savez(FILE, **{'0/NAME': array, ...})"
)
_OF_DRAW: Final = re.compile(r"([0-9]{1,4})/(.+)", re.DOTALL)


def report_passes(
    model_path: str, target: str, recipe: str, input_shapes: Shapes, without: list[str], dump_dir: str | None
) -> RecipeReport:
    phases = BEFORE_SCHEDULES[recipe]
    valid_names = {row.name for row in pass_table()} | {
        step["pass"] for phase in phases for step in phase.steps
    }
    if unknown := sorted({*without} - valid_names):
        raise UnknownName(f"unknown pass {unknown[0]!r}", hint=f"known: {', '.join(sorted(valid_names))}")

    tvm_target = as_tvm_target(target)
    mod = load_network(model_path, input_shapes, tvm_target).mod
    reports: list[PassReport] = []
    for number, phase in enumerate(phases, start=1):
        for step in phase.steps:
            try:
                with name_pass_in_errors(step["pass"]):
                    mod, step_reports = run_passes(mod, [step], tvm_target, without)
            except PassFailed as error:
                if step["pass"] not in OWN_PASSES:
                    raise
                step_reports = [Report(step["pass"], skipped=error.message)]
            reports += [
                PassReport(
                    phase=phase.name,
                    name=report.name,
                    matched=report.matched,
                    fired=report.fired,
                    left=dict(report.left.most_common()),
                    skipped=report.skipped,
                )
                for report in step_reports
                if report.counts or report.skipped
            ]
        if dump_dir is not None:
            Path(dump_dir, f"{number:02}-{phase.name.replace(' ', '-')}.py").write_text(mod.script())
    return RecipeReport(reports, count_remaining_copies(mod))


def make_inputs(
    model_path: str, inputs_npz: str, seed: int, input_shapes: Shapes, input_ranges: Ranges
) -> list[str]:
    arrays = stock.random_inputs(read_model(model_path), input_shapes, input_ranges, seed)
    np.savez(inputs_npz, **arrays)
    return list(arrays)


def split_samples(
    model_path: str, samples_npz: str, folder: str, input_shapes: Shapes, region_path: str | None = None
) -> list[str]:
    specs = stock.input_specs(model := read_model(model_path), input_shapes)
    region = None if region_path is None else stock.input_specs(read_model(region_path), {})
    paths = []
    for number, draw in enumerate(_read_draws(samples_npz, [spec["name"] for spec in specs])):
        arrays = {spec["name"]: _check_array(draw[spec["name"]], spec, number) for spec in specs}
        if region is not None:
            embed_weights(model)
            arrays = compute_values(model, arrays, [spec["name"] for spec in region])
        paths.append(str(Path(folder, f"samples-{number}.npz")))
        np.savez(paths[-1], **arrays)  # type: ignore[arg-type]
    return paths


def _read_draws(path: str, names: Sequence[str]) -> list[Mapping[str, NDArray[Any]]]:
    """Return the arrays of each draw by input name. Raises InvalidModel if the file is no
    npz, or a draw lacks an input or has another."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise InvalidModel(f"the file of inputs is no npz of arrays: {error}", hint=INPUTS_HINT) from None
    draws: dict[int, dict[str, NDArray[Any]]] = {}
    for key, array in arrays.items():
        place = None if key in names else _OF_DRAW.fullmatch(key)
        number, name = (int(place[1]), place[2]) if place else (0, key)
        draws.setdefault(number, {})[name] = array
    for number, draw in sorted(draws.items()):
        if draw.keys() != {*names}:
            lacking, unknown = sorted({*names} - draw.keys()), sorted(draw.keys() - {*names})
            problem = f"lacks {', '.join(lacking)}" if lacking else f"has {', '.join(unknown)}"
            raise InvalidModel(
                f"draw {number} of the file of inputs {problem}; the model takes {', '.join(names)}",
                hint=INPUTS_HINT,
            )
    if not 1 <= len(draws) <= MOST_DRAWS:
        raise InvalidModel(
            f"the file of inputs has {len(draws)} draws; 1 to {MOST_DRAWS} are taken", hint=INPUTS_HINT
        )
    return [draw for _, draw in sorted(draws.items())]


def _check_array(array: NDArray[Any], spec: stock.InputSpec, number: int) -> NDArray[Any]:
    """Return the array. Raises InvalidModel if its type or shape is not the input's."""
    if str(array.dtype) != spec["dtype"] or list(array.shape) != list(spec["shape"]):
        raise InvalidModel(
            f"input {spec['name']!r} of draw {number} is {array.dtype} {list(array.shape)}; the model takes "
            f"{spec['dtype']} {list(spec['shape'])}",
            hint="give inputs of the shapes that are tuned, or --input-shape for these inputs",
        )
    return np.asarray(array, order="C")


def scripts(tir: str, trace: str) -> ScheduleScripts:
    mod = parse_module(tir)
    schedule = tuning_database.apply_trace(mod, trace)
    # With int64 as default: `T.int64(4)` for every 4 would hide the loops.
    unscheduled, scheduled = (
        str(module.script(int_dtype="int64", verbose_expr=False)) for module in (mod, schedule.mod)
    )
    steps = "\n".join(schedule.trace.as_python())
    return ScheduleScripts(original=unscheduled, scheduled=scheduled, trace=steps)


def warm_up(target: str) -> None:
    parse_tvm_target(target)


def read_signature(model_path: str, input_shapes: Shapes) -> Signature:
    network = load_network(model_path, input_shapes)
    return Signature(network.inputs, network.outputs, network.operators)


ANSWERS: Final = (
    ModelCompiler.warm_up.make_handler(warm_up),
    ModelCompiler.read_signature.make_handler(read_signature),
    ModelCompiler.extract.make_handler(extract),
    ModelCompiler.find_region.make_handler(find_region),
    ModelCompiler.cut_region.make_handler(cut_region),
    ModelCompiler.list_passes.make_handler(pass_table),
    ModelCompiler.report_passes.make_handler(report_passes),
    ModelCompiler.import_ahead.make_handler(import_ahead),
    ModelCompiler.compile_model.make_handler(compile_model),
    ModelCompiler.explain_kernels.make_handler(explain_kernels),
    ModelCompiler.extract_range.make_handler(extract_range),
    ModelCompiler.compile_default.make_handler(compile_default),
    ModelCompiler.make_inputs.make_handler(make_inputs),
    ModelCompiler.split_samples.make_handler(split_samples),
    ModelCompiler.compare_models.make_handler(compare_models),
    ModelCompiler.find_constant_outputs.make_handler(find_constant_outputs),
    ModelCompiler.write_database.make_handler(tuning_database.write_database),
    ModelCompiler.read_schedule_directory.make_handler(tuning_database.read_schedule_directory),
    ModelCompiler.read_metaschedule_log.make_handler(tuning_database.read_metaschedule_log),
    ModelCompiler.open_dataset.make_handler(open_dataset),
    ModelCompiler.next_rows.make_handler(next_rows),
    ModelCompiler.scripts.make_handler(scripts),
    ModelCompiler.build_whole_program.make_handler(build_whole_program),
    ModelCompiler.compare_outputs.make_handler(compare_outputs),
)

if __name__ == "__main__":
    evaluator = ProgramEvaluator(os.environ.get(REACHED_VARIABLE, OFF))
    redirect_folding(evaluator)
    reference = ModelCompiler.write_reference.make_handler(partial(write_reference, run=evaluator.run))
    handlers = collect_handlers(ModelCompiler, *ANSWERS, reference)
    # No process runs programs of two calls, which may be of two models.
    serve(refuse_if_code_changed({name: evaluator(answer) for name, answer in handlers.items()}))
