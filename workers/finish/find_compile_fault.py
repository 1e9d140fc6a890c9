"""Search for the schedule or the graph pass because of which a job's whole model does not compile."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Final, NoReturn

from db.repositories.job_events_and_warnings import NewJobWarning, Warnings
from db.repositories.jobs import Jobs
from db.repositories.replaced_code import ReplacedCode
from mallorn.core.errors import InvalidModel, InvalidRequest, MallornError, Unavailable
from workers.finish.job_model import JobModel, TunedModel
from workers.finish.winners import Winner
from workers.model_import.run import CHECK
from workers.subprocesses.errors import HOSTS_DOING, ChildCrashed, ChildFailed
from workers.tvm.find_faulty_parts import faulty_parts
from workers.tvm.graph_recipes import names_to_leave_out

COMPILER_ERRORS: Final = (ChildFailed, ChildCrashed, InvalidRequest)
SEARCHES: Final = "the whole model does not compile: the search for the schedule or the graph pass goes on"
ANEW: Final = "its model, which does not compile with the graph pass {}, is imported again without it"


def is_compiler_error(error: MallornError) -> bool:
    """Return whether an error of a compilation comes from the model, its schedules or its passes."""
    return isinstance(error, COMPILER_ERRORS) and not isinstance(error, HOSTS_DOING)


def compile_without_fault(model: JobModel, winners: Sequence[Winner], error: MallornError) -> TunedModel:
    """Compile the model without the schedules that are to blame for `error`.

    Where no schedule is to blame, the job is imported again without the passes that are: raises Unavailable.
    Raises InvalidModel with the compiler's words where the model does not compile, whatever is left out.
    """
    by_task = {winner.contest.task.name: winner for winner in winners}
    builds: dict[frozenset[str], TunedModel] = {}
    numbers = count(1)

    def compiles_without(tasks: Sequence[str]) -> bool:
        kept = [winner for name, winner in by_task.items() if name not in tasks]
        try:
            builds[frozenset(tasks)] = model.build(f"search-{next(numbers)}", kept)
        except MallornError as failed:
            if not is_compiler_error(failed):
                raise
            return False
        return True

    with model.claimed.runtime.database.transaction() as session:
        Jobs(session).say(model.claimed.job.id, SEARCHES)
    if (blamed := faulty_parts(list(by_task), compiles_without)) is None:
        _import_without_passes(model, error)
    with model.claimed.runtime.database.transaction() as session:
        for name in blamed:
            words = f"the whole model does not compile with it, and is compiled without it: {error.headline}"
            Warnings(session).add(model.claimed.job.id, NewJobWarning(f"schedule of {name}", words))
    return builds[frozenset(blamed)]


def _import_without_passes(model: JobModel, error: MallornError) -> NoReturn:
    claimed = model.claimed
    recipe, bare = claimed.graph.recipe, model.write("bare", ())

    def compiles_without(names: Sequence[str]) -> bool:
        without = recipe.leaving_out(dict.fromkeys(names, error.headline))
        try:
            replace(model, whole=replace(model.whole, recipe=without)).compile(bare, ())
        except MallornError as failed:
            if not is_compiler_error(failed):
                raise
            return False
        return True

    names = names_to_leave_out([*recipe.before, *recipe.after])
    if (blamed := faulty_parts(names, compiles_without)) is None:
        raise InvalidModel(f"the whole model does not compile: {error.headline}", hint=CHECK)
    why = f"the whole model does not compile with it: {error.headline}"
    graph = claimed.graph.model_copy(update={"recipe": recipe.leaving_out(dict.fromkeys(blamed, why))})
    claimed.lease.check()
    with claimed.runtime.database.transaction() as session:
        ReplacedCode(session).import_with(claimed.job.id, graph, ANEW.format(", ".join(blamed)))
    raise Unavailable(ANEW.format(", ".join(blamed)))
