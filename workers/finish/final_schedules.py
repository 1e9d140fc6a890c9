"""What a finish hands out: the winners, or rivals of theirs that do better inside the whole model."""

import json
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from mallorn.core.artifact_uris import reaching, scripts_uri
from mallorn.core.errors import MallornError
from mallorn.core.values.finish_report import FinishReport, InsideTheModel
from workers.finish.decide_inside_model import InsideChoice, decide_inside
from workers.finish.find_compile_fault import compile_without_fault, is_compiler_error
from workers.finish.job_model import JobModel, TunedModel, where_it_runs
from workers.finish.numeric_checker import Checker
from workers.finish.step_log import StepLog
from workers.finish.winners import Winner
from workers.interfaces.model_compiler import ModelCompiler, Scripts
from workers.process.leased_stage import StageContext
from workers.subprocesses.crash_retry_and_advice import twice
from workers.subprocesses.errors import ChildError

log = logging.getLogger(__name__)
_SCRIPTS: Final = TypeAdapter(Scripts)
COMPILE: Final = "compile the tuned model"
INSIDE: Final = "decide close contests inside the whole model"


@dataclass(frozen=True, slots=True)
class FinalSchedules:
    """The schedules as tuning records, and the model compiled with them where that worked."""

    winners: Sequence[Winner]
    directory: Path
    built: TunedModel | None
    report: FinishReport


def records_alone(model: JobModel, winners: Sequence[Winner]) -> FinalSchedules:
    """Write the winners' records and compile nothing."""
    return FinalSchedules(winners, model.write("export", winners), None, FinishReport())


def choose(model: JobModel, winners: Sequence[Winner], check: Checker, undone: StepLog) -> FinalSchedules:
    """Go on from the winners' records as far as it works.

    Raises InvalidModel where the model does not compile, whatever is left out; Unavailable where it is
    imported again without a graph pass.
    """
    directory = model.write("export", winners)
    first = undone.attempt(COMPILE, partial(_compile, model, directory, winners))
    if isinstance(first, MallornError):
        first = compile_without_fault(model, winners, first)
    if first is None:
        return FinalSchedules(winners, directory, None, FinishReport())
    if undone.attempt("make inputs for the model", lambda: model.whole.inputs) is None:
        return FinalSchedules(winners, directory, None, covered(first))
    decided = undone.attempt(INSIDE, partial(_inside, model, first, check)) or InsideChoice(first, None)
    chosen = decided.build
    return FinalSchedules(chosen.winners, chosen.directory, chosen, covered(chosen, decided.report))


def _compile(model: JobModel, directory: Path, winners: Sequence[Winner]) -> TunedModel | MallornError:
    """Return the build, or the compiler's error where the model, a schedule or a pass is to blame."""
    try:
        return twice(partial(model.compile, directory, winners))
    except MallornError as error:
        if not is_compiler_error(error):
            raise
        return error


def covered(built: TunedModel, inside: InsideTheModel | None = None) -> FinishReport:
    """How many of the model's workloads have a schedule, and what was exchanged inside it."""
    compiled = built.compiled
    report = FinishReport(found=compiled.found, of=compiled.of, missing=compiled.missing)
    return report if inside is None else report.model_copy(update={"inside_the_model": inside})


def _inside(model: JobModel, first: TunedModel, check: Checker) -> InsideChoice:
    """The first build where the job does without the pass, measures nothing, or has no device any more.

    Of a range, too: what is faster inside the largest shapes says nothing of the others.
    """
    claimed = model.claimed
    one_shape = claimed.graph.dynamic is None
    wanted = claimed.options.searches and claimed.options.contests == "inside"
    placed = where_it_runs(model) if one_shape and wanted else None
    return decide_inside(placed, first, check) if placed is not None else InsideChoice(first, None)


def keep_scripts(claimed: StageContext, winners: Sequence[Winner], graphs: ModelCompiler) -> None:
    """Store the scripts of each winner; those that cannot be printed are left out."""
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
