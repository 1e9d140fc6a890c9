"""A round whose searcher or cost model does not work goes on without it, and its job says so."""

import logging

from db.repositories.job_events_and_warnings import NewJobWarning, Warnings
from db.repositories.leases import Token
from db.repositories.rounds import Rounds
from mallorn.core.errors import LeaseLost, MallornError, PluginFailed
from mallorn.core.plugin_errors import blame_plugins
from mallorn.core.registry import WORDS
from mallorn.core.values.decision_log import LeftOut, RoundStats
from workers.process.worker_runtime import Runtime
from workers.round.feature_lookup import FeatureLookup
from workers.round.propose import SAFE_SEARCHER, Proposed, propose
from workers.round.ranking_evidence import rank
from workers.round.round_context import RoundContext, load_round

log = logging.getLogger(__name__)


def prepare(runtime: Runtime, round_id: int, token: Token) -> tuple[RoundContext, Proposed]:
    """What a round measures. What it cannot be proposed with is left out, and stays so for every attempt.

    Raises PluginFailed where candidates of this round were measured already, or nothing is left to leave out.
    """
    while True:
        try:
            with runtime.database.session() as session:
                context = load_round(session, round_id)
            validate = runtime.validator(context.target)
            return context, propose(FeatureLookup(runtime.database, runtime.compiler), context, validate)
        except PluginFailed as error:
            _leave_out(runtime, round_id, token, error)


def ranked(runtime: Runtime, context: RoundContext) -> RoundStats:
    """How well models ordered the round; nothing where one of them does not work."""
    try:
        with blame_plugins(("cost_model", context.options.cost_model)):
            return rank(FeatureLookup(runtime.database, runtime.compiler), context)
    except PluginFailed as error:
        warn(runtime, context.row.job_id, error, "families are judged without it")
        return RoundStats()


def warn(runtime: Runtime, job_id: str, error: MallornError, instead: str) -> None:
    """Keep what went wrong, and what is done instead, with the job."""
    log.warning("job %s: %s; %s", job_id, error.message, instead, exc_info=error)
    with runtime.database.transaction() as session:
        Warnings(session).add(job_id, _warning(error, instead))


def _leave_out(runtime: Runtime, round_id: int, token: Token, error: PluginFailed) -> None:
    log.warning("round %s: %s", round_id, error.message, exc_info=error)
    with runtime.database.transaction() as session:
        rounds = Rounds(session)
        row = rounds.get(round_id)
        unguided = error.seam == "cost_model"
        settled = row.cost_model_id is None if unguided else row.searcher == SAFE_SEARCHER
        if settled or rounds.done_slots(round_id):
            raise error
        instead = "candidates are proposed unguided" if unguided else f"{SAFE_SEARCHER} proposes instead"
        without = {"cost_model_id": None} if unguided else {"searcher": SAFE_SEARCHER}
        noted = [*row.reason.without, LeftOut(name=error.name, why=error.message)]
        reason = row.reason.model_copy(update={"without": noted})
        if not rounds.revise(round_id, token, reason=reason, **without):
            raise LeaseLost
        Warnings(session).add(row.job_id, _warning(error, instead))


def _warning(error: MallornError, instead: str) -> NewJobWarning:
    seam, name = getattr(error, "seam", ""), getattr(error, "name", "")
    source = f"{WORDS.get(seam, seam)} {name}".strip() or error.code
    what = error.message.removeprefix(f"the {source} ")  # who it is stands beside it
    return NewJobWarning(source, f"{what}; {instead}", error.hint)
