"""The schedules that a finish exports: winners, or rivals that are faster inside the model."""

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

from db.repositories.job_events_and_warnings import NewJobWarning, Warnings
from db.repositories.jobs import Jobs
from db.repositories.replaced_code import ReplacedCode
from mallorn.core.artifact_uris import reaching, scripts_uri
from mallorn.core.errors import InvalidModel, InvalidRequest, MallornError, Unavailable
from mallorn.core.values.finish_report import FinishReport, InsideTheModel
from workers.finish.decide_inside_model import InsideChoice, decide_inside
from workers.finish.job_model import JobModel, TunedModel, where_it_runs
from workers.finish.numeric_checker import Checker
from workers.finish.step_log import StepLog
from workers.finish.winners import Winner
from workers.interfaces.model_compiler import ModelCompiler, Scripts
from workers.model_import.run import CHECK
from workers.process.leased_stage import StageContext
from workers.subprocesses.errors import HOSTS_DOING, ChildCrashed, ChildError, ChildFailed, twice
from workers.tvm.graph_recipes import faulty_parts, leaving_out, names_to_leave_out

log = logging.getLogger(__name__)
_SCRIPTS: Final = TypeAdapter(Scripts)
COMPILE: Final = "compile the tuned model"
COMPILER_ERRORS: Final = (ChildFailed, ChildCrashed, InvalidRequest)
SEARCHES: Final = "the whole model does not compile: the schedule or pass to blame is searched"
ANEW: Final = "the whole model does not compile with {}: it is imported again without"
INSIDE: Final = "decide close contests inside the whole model"


@dataclass(frozen=True, slots=True)
class FinalSchedules:
    """The schedules as tuning records, and the model compiled with them, if it was."""

    winners: Sequence[Winner]
    directory: Path
    built: TunedModel | None
    report: FinishReport


def records_alone(model: JobModel, winners: Sequence[Winner]) -> FinalSchedules:
    """Write the winners' records without compiling the model."""
    return FinalSchedules(winners, model.write("export", winners), None, FinishReport())


def choose(model: JobModel, winners: Sequence[Winner], check: Checker, undone: StepLog) -> FinalSchedules:
    """Write the winners' records, compile the model, and decide close contests inside it.

    A step that fails is logged, and the result of the last successful step is returned. Raises
    InvalidModel if the model does not compile even without schedules and passes; Unavailable
    if the job must import the model again without a graph pass.
    """
    directory = model.write("export", winners)
    compile_model = partial(model.compile, directory, winners)
    outcome = undone.attempt(COMPILE, partial(_compiled, partial(twice, compile_model)))
    if isinstance(outcome, MallornError):
        outcome = compile_without_fault(model, winners, outcome)
    if outcome is None:
        return FinalSchedules(winners, directory, None, FinishReport())
    if undone.attempt("make inputs for the model", lambda: model.whole.inputs) is None:
        return FinalSchedules(winners, directory, None, covered(outcome))
    choice = undone.attempt(INSIDE, partial(_inside, model, outcome, check)) or InsideChoice(outcome, None)
    chosen = choice.build
    return FinalSchedules(chosen.winners, chosen.directory, chosen, covered(chosen, choice.report))


def _compiled(compile_model: Callable[[], TunedModel]) -> TunedModel | MallornError:
    """Return the build, or the error if the model, its schedules or its passes caused it."""
    try:
        return compile_model()
    except COMPILER_ERRORS as error:
        if isinstance(error, HOSTS_DOING):
            raise
        return error


def compile_without_fault(model: JobModel, winners: Sequence[Winner], error: MallornError) -> TunedModel:
    """Compile the model without the schedules that cause `error`.

    If graph passes cause it, send the job back to its import and raise Unavailable. Raises
    InvalidModel with the compiler's message if the model does not compile even without all
    schedules and passes.
    """
    by_task = {winner.contest.task.name: winner for winner in winners}
    builds: dict[frozenset[str], TunedModel] = {}
    numbers = count(1)

    def compiles_without(tasks: Sequence[str]) -> bool:
        kept = [winner for name, winner in by_task.items() if name not in tasks]
        build = _compiled(partial(model.build, f"search-{next(numbers)}", kept))
        if isinstance(build, MallornError):
            return False
        builds[frozenset(tasks)] = build
        return True

    with model.claimed.runtime.database.transaction() as session:
        Jobs(session).say(model.claimed.job.id, SEARCHES)
    why = f"the whole model does not compile with it: {error.headline}"
    if (blamed := faulty_parts(list(by_task), compiles_without)) is None:
        _import_without_passes(model, error, why)
    with model.claimed.runtime.database.transaction() as session:
        for name in blamed:
            warning = NewJobWarning(f"schedule of {name}", f"{why}; it is left out")
            Warnings(session).add(model.claimed.job.id, warning)
    return builds[frozenset(blamed)]


def _import_without_passes(model: JobModel, error: MallornError, why: str) -> NoReturn:
    claimed = model.claimed
    recipe, bare = claimed.graph.recipe, model.write("bare", ())

    def compiles_without(names: Sequence[str]) -> bool:
        whole = replace(model.whole, recipe=leaving_out(recipe, dict.fromkeys(names, why)))
        build = _compiled(partial(replace(model, whole=whole).compile, bare, ()))
        return not isinstance(build, MallornError)

    if (blamed := faulty_parts(names_to_leave_out(recipe), compiles_without)) is None:
        raise InvalidModel(f"the whole model does not compile: {error.headline}", hint=CHECK)
    graph = claimed.graph.model_copy(update={"recipe": leaving_out(recipe, dict.fromkeys(blamed, why))})
    reason = ANEW.format(", ".join(blamed))
    claimed.lease.check()
    with claimed.runtime.database.transaction() as session:
        ReplacedCode(session).import_with(claimed.job.id, graph, reason)
    raise Unavailable(reason)


def covered(built: TunedModel, inside: InsideTheModel | None = None) -> FinishReport:
    """Return the report section on workloads with a schedule and on swaps inside the model."""
    compiled = built.compiled
    report = FinishReport(found=compiled.found, of=compiled.of, missing=compiled.missing)
    return report if inside is None else report.model_copy(update={"inside_the_model": inside})


def _inside(model: JobModel, first: TunedModel, check: Checker) -> InsideChoice:
    """Decide close contests inside the model; if that is not possible, return the first build.

    It is not possible for a job whose options exclude it, without a device, or with a range of
    shapes: times inside the largest shapes say nothing about the other shapes.
    """
    claimed = model.claimed
    one_shape = claimed.graph.dynamic is None
    is_enabled = claimed.options.searches and claimed.options.contests == "inside"
    placed = where_it_runs(model) if one_shape and is_enabled else None
    return decide_inside(placed, first, check) if placed is not None else InsideChoice(first, None)


def keep_scripts(claimed: StageContext, winners: Sequence[Winner], graphs: ModelCompiler) -> None:
    """Store the scripts of each winner; log and skip scripts that cannot be printed."""
    for winner in winners:
        claimed.lease.check()
        try:
            _keep(claimed, winner, graphs)
        except ChildError as error:
            log.warning("no script of %s: %s", winner.contest.task.name, error)


def _keep(claimed: StageContext, winner: Winner, graphs: ModelCompiler) -> None:
    program = winner.contest.program
    url = scripts_uri(claimed.runtime.settings.artifacts, program.key, winner.trace)
    with reaching(url) as (store, path):
        if store.exists(path):
            with suppress(ValueError):  # a worker may have been killed while it wrote them
                _SCRIPTS.validate_json(store.cat_file(path))
                return
        scripts = graphs.scripts(program.tir, winner.trace)
        store.makedirs(store._parent(path), exist_ok=True)
        store.pipe_file(path, json.dumps(asdict(scripts)).encode())
