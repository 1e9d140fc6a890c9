"""Compile the model with the first choices, leave faulty ones out or check all, and store scripts."""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from math import inf
from pathlib import Path
from typing import Final, NoReturn

from mallorn.core.artifact_uris import open_artifact, scripts_uri
from mallorn.core.errors import InvalidModel, InvalidRequest, MallornError, Unavailable
from mallorn.core.values.dataset import ScheduleScripts
from mallorn.core.values.finish_report import ModelContests, ModelLatency
from mallorn.db.repositories.job_events_and_warnings import NewJobWarning, Warnings
from mallorn.db.repositories.job_transitions import ReplacedCode
from mallorn.workers.finish.choose_winner import Winner, add_inside_times
from mallorn.workers.finish.export_directory import ExportFailed
from mallorn.workers.finish.job_model import JobModel, TunedModel
from mallorn.workers.finish.step_log import StepLog
from mallorn.workers.interfaces.model_compiler import Compiled, ModelCompiler
from mallorn.workers.model_import.run import CHECK
from mallorn.workers.process.leased_work import LeasedStage
from mallorn.workers.subprocesses import errors
from mallorn.workers.tvm.network.graph_recipes import faulty_parts, skippable_passes, with_skipped_passes
from mallorn.workers.whole_model.compiled_model import ONNXRUNTIME
from mallorn.workers.whole_model.engines import TUNED, Engines

log = logging.getLogger(__name__)
COMPILER_ERRORS: Final = (errors.ChildFailed, errors.ChildCrashed, InvalidRequest)
FEW_BURSTS: Final = 3  # a user waits
FEW_KERNELS_SEC: Final = 0.4


@dataclass(frozen=True, slots=True)
class WholeCheck:
    """The comparison of a build's outputs with onnxruntime's."""

    error: float
    largest_error: float  # the largest allowed `error`
    latency_us: dict[str, ModelLatency]  # of both, timed after it; empty without rivals


@dataclass(frozen=True, slots=True)
class FinalSchedules:
    """The schedules to export, their tuning records, and the model built with them."""

    winners: Sequence[Winner]
    directory: Path
    built: TunedModel | None = None  # None: not compiled, or no inputs to run it with
    compiled: Compiled | None = None  # counts the model's workloads; None: not compiled
    inside: ModelContests | None = None  # the report section on contests inside the model
    check: WholeCheck | None = None  # None: each winner was checked by itself, or none was


def write_records_only(model: JobModel, winners: Sequence[Winner]) -> FinalSchedules:
    return FinalSchedules(winners, model.write_tuning_records("export", winners))


def build_final_schedules(model: JobModel, winners: Sequence[Winner], step_log: StepLog) -> FinalSchedules:
    """Write the winners' tuning records, and compile the model. A failed step is logged;
    the last success is returned.

    Raises InvalidModel if the model does not compile even without schedules and graph
    passes; Unavailable if the job must import the model again without a graph pass.
    """
    directory = model.write_tuning_records("export", winners)
    compile_model = partial(model.compile, directory, winners)
    building = partial(_build_or_error, partial(errors.retry_after_crash, compile_model))
    outcome = step_log.attempt("compile the tuned model", building)
    if isinstance(outcome, MallornError):
        outcome = compile_without_fault(model, winners, outcome)
    if outcome is None:
        return FinalSchedules(winners, directory)
    build = outcome
    if step_log.attempt("make inputs for the model", lambda: model.whole_model.inputs_file) is None:
        return FinalSchedules(winners, directory, compiled=build.compiled)
    return FinalSchedules(build.winners, build.directory, build, build.compiled)


def build_and_check_whole(
    model: JobModel, winners: Sequence[Winner], step_log: StepLog
) -> FinalSchedules | None:
    """Build the model with the winners, compare its outputs with onnxruntime's, and time
    it. None if any of that fails or the outputs are wrong."""
    try:
        with Engines(model.whole_model, (TUNED, ONNXRUNTIME)) as engines:  # starts during the build
            with step_log.time_step("build"):
                build = model.build("first", winners)
            with step_log.time_step("check"):
                engines.load({TUNED: build.library})
                error_by_engine, largest_error = engines.errors(TUNED), engines.accepted_error
                error = error_by_engine.get(ONNXRUNTIME, inf)
                if error > largest_error and (
                    ONNXRUNTIME not in error_by_engine or model.judge_import(error, engines.own_error) is None
                ):
                    raise InvalidModel(f"relative error {error:.1e}")
                has_rivals = any(winner.rivals for winner in winners)
                with model.lock_host_for_timing() as is_alone:
                    latency_us = {}
                    if has_rivals and model.whole_model.device_pool is None:
                        latency_us = engines.latencies(FEW_BURSTS)
                    engines.drop_engine(ONNXRUNTIME)
                    times = engines.kernel_times(FEW_KERNELS_SEC)[TUNED]
    except (errors.ChildError, ExportFailed, InvalidModel, Unavailable) as failure:
        log.warning("first guesses are decided task by task: %s", failure.headline)
        if not isinstance(failure, Unavailable):
            model.libraries.remove_library(winners)
        return None
    build = replace(build, winners=add_inside_times(build.winners, times, is_alone))
    check = WholeCheck(error, largest_error, latency_us)
    return FinalSchedules(build.winners, build.directory, build, build.compiled, check=check)


def _build_or_error(compile_model: Callable[[], TunedModel]) -> TunedModel | MallornError:
    try:
        return compile_model()
    except COMPILER_ERRORS as error:
        if isinstance(error, errors.HOSTS_DOING):
            raise
        return error


def compile_without_fault(model: JobModel, winners: Sequence[Winner], error: MallornError) -> TunedModel:
    """Compile the model without the schedules that cause `error`.

    If graph passes cause it, send the job back to import its model without them, and raise
    Unavailable. Raises InvalidModel with the compiler's message if the model does not
    compile even with no schedule and no graph pass at all.
    """
    by_task = {winner.contest.task.name: winner for winner in winners}
    builds: dict[frozenset[str], TunedModel] = {}
    numbers = count(1)

    def compiles_without(tasks: Sequence[str]) -> bool:
        remaining = [winner for name, winner in by_task.items() if name not in tasks]
        build = _build_or_error(partial(model.build, f"search-{next(numbers)}", remaining))
        if isinstance(build, MallornError):
            return False
        builds[frozenset(tasks)] = build
        return True

    model.stage.set_step("the schedule or pass with which the whole model does not compile is searched for")
    fault = f"the whole model does not compile with it: {error.headline}"
    if (blamed := faulty_parts(list(by_task), compiles_without)) is None:
        _import_without_passes(model, error, fault)
    with model.stage.runtime.database.transaction() as session:
        for name in blamed:
            warning = NewJobWarning(f"schedule of {name}", f"{fault}; the schedule is left out")
            Warnings(session).add(model.stage.job.id, warning)
    return builds[frozenset(blamed)]


def _import_without_passes(model: JobModel, error: MallornError, fault: str) -> NoReturn:
    stage = model.stage
    recipe, bare = stage.graph_report.recipe, model.write_tuning_records("bare", ())

    def compiles_without(names: Sequence[str]) -> bool:
        reduced_recipe = with_skipped_passes(recipe, dict.fromkeys(names, fault))
        whole_model = replace(model.whole_model, recipe=reduced_recipe)
        build = _build_or_error(partial(replace(model, whole_model=whole_model).compile, bare, ()))
        return not isinstance(build, MallornError)

    if (blamed := faulty_parts(skippable_passes(recipe), compiles_without)) is None:
        raise InvalidModel(f"the whole model does not compile: {error.headline}", hint=CHECK)
    reduced_recipe = with_skipped_passes(recipe, dict.fromkeys(blamed, fault))
    graph = stage.graph_report.model_copy(update={"recipe": reduced_recipe})
    names = ", ".join(blamed)
    reason = f"the whole model does not compile with {names}: another import leaves it out"
    stage.lease.raise_if_lost()
    with stage.runtime.database.transaction() as session:
        ReplacedCode(session).import_with_graph_passes(stage.job.id, graph, reason)
    raise Unavailable(reason)


def store_scripts(stage: LeasedStage, winners: Sequence[Winner], graphs: ModelCompiler) -> None:
    """Store each winner's TVMScript and trace; log and skip what cannot be printed."""
    for winner in winners:
        stage.lease.raise_if_lost()
        program = winner.contest.program
        try:
            url = scripts_uri(stage.runtime.settings.artifacts, stage.job.owner, program.key, winner.trace)
            with open_artifact(url) as (store, path):
                if store.exists(path):
                    with suppress(ValueError):  # a worker may have been killed while it wrote them
                        ScheduleScripts.model_validate_json(store.cat_file(path))
                        continue
                scripts = graphs.scripts(program.tir, winner.trace)
                store.makedirs(store._parent(path), exist_ok=True)
                store.pipe_file(path, scripts.model_dump_json().encode())
        except errors.ChildError as error:
            log.warning("no script of %s: %s", winner.contest.task.name, error)
