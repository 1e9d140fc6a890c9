"""Compile the model with the winning schedules, leave faulty ones out, and store scripts."""

import json
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final, NoReturn

from pydantic import TypeAdapter

from mallorn.core.artifact_uris import open_artifact, scripts_uri
from mallorn.core.errors import InvalidModel, InvalidRequest, MallornError, Unavailable
from mallorn.core.values.finish_report import ModelContests
from mallorn.db.repositories.job_events_and_warnings import NewJobWarning, Warnings
from mallorn.db.repositories.job_transitions import ReplacedCode
from mallorn.db.repositories.jobs import Jobs
from mallorn.workers.finish.choose_winner import Winner
from mallorn.workers.finish.decide_inside_model import choose_build_inside_model
from mallorn.workers.finish.job_model import JobModel, TunedModel
from mallorn.workers.finish.numeric_check import Checker
from mallorn.workers.finish.step_log import StepLog
from mallorn.workers.interfaces.model_compiler import Compiled, ModelCompiler, Scripts
from mallorn.workers.model_import.run import CHECK
from mallorn.workers.process.leased_stage import LeasedStage
from mallorn.workers.subprocesses import errors
from mallorn.workers.tvm.network.graph_recipes import faulty_parts, skippable_passes, with_skipped_passes

log = logging.getLogger(__name__)
_SCRIPTS: Final = TypeAdapter(Scripts)
COMPILE: Final = "compile the tuned model"
COMPILER_ERRORS: Final = (errors.ChildFailed, errors.ChildCrashed, InvalidRequest)
SEARCHES: Final = "the whole model does not compile: the schedule or pass that causes it is searched for"
ANEW: Final = "the whole model does not compile with {}: another import leaves it out"
INSIDE: Final = "compare nearly equal candidates inside the whole model"


@dataclass(frozen=True, slots=True)
class FinalSchedules:
    """The schedules to export, their tuning records, and the model built with them."""

    winners: Sequence[Winner]
    directory: Path
    built: TunedModel | None = None  # None: not compiled, or no inputs to run it with
    compiled: Compiled | None = None  # counts the model's workloads; None: not compiled
    inside: ModelContests | None = None  # the report section on contests inside the model


def write_records_only(model: JobModel, winners: Sequence[Winner]) -> FinalSchedules:
    return FinalSchedules(winners, model.write_tuning_records("export", winners))


def build_final_schedules(
    model: JobModel, winners: Sequence[Winner], checker: Checker, step_log: StepLog
) -> FinalSchedules:
    """Write the winners' tuning records, compile the model, and choose between close rivals
    by their times inside it. A failed step is logged; the last success is returned.

    Raises InvalidModel if the model does not compile even without schedules and graph
    passes; Unavailable if the job must import the model again without a graph pass.
    """
    directory = model.write_tuning_records("export", winners)
    compile_model = partial(model.compile, directory, winners)
    outcome = step_log.attempt(
        COMPILE, partial(_build_or_error, partial(errors.retry_after_crash, compile_model))
    )
    if isinstance(outcome, MallornError):
        outcome = compile_without_fault(model, winners, outcome)
    if outcome is None:
        return FinalSchedules(winners, directory)
    build = outcome
    if step_log.attempt("make inputs for the model", lambda: model.whole_model.inputs_file) is None:
        return FinalSchedules(winners, directory, compiled=build.compiled)
    report = None
    # Times inside the largest shapes of a range say nothing about the other shapes.
    one_shape, options = model.stage.graph_report.dynamic is None, model.stage.options
    if one_shape and options.needs_measurements and options.contests == "inside":
        choice = step_log.attempt(INSIDE, partial(choose_build_inside_model, model, build, checker))
        if choice is not None:
            build, report = choice.build, choice.report
    return FinalSchedules(build.winners, build.directory, build, build.compiled, report)


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

    with model.stage.runtime.database.transaction() as session:
        Jobs(session).set_reason(model.stage.job.id, SEARCHES)
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
    reason = ANEW.format(", ".join(blamed))
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
                        _SCRIPTS.validate_json(store.cat_file(path))
                        continue
                scripts = graphs.scripts(program.tir, winner.trace)
                store.makedirs(store._parent(path), exist_ok=True)
                store.pipe_file(path, json.dumps(asdict(scripts)).encode())
        except errors.ChildError as error:
            log.warning("no script of %s: %s", winner.contest.task.name, error)
