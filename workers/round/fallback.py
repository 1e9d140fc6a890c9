"""Continue a round without a searcher or cost model that fails, and warn the job."""

import logging

from db.repositories.job_events_and_warnings import NewJobWarning, Warnings
from db.repositories.leases import Token
from db.repositories.rounds import Rounds
from mallorn.core.errors import LeaseLost, MallornError, PluginFailed
from mallorn.core.plugins import blame_plugins
from mallorn.core.registry import WORDS
from mallorn.core.values.decision_log import LeftOut, RoundStats
from workers.process.worker_runtime import Runtime
from workers.round.feature_lookup import FeatureLookup
from workers.round.propose import SAFE_SEARCHER, Proposed, propose
from workers.round.ranking_evidence import rank
from workers.round.round_context import RoundContext, load_round

log = logging.getLogger(__name__)


def prepare(runtime: Runtime, round_id: int, token: Token) -> tuple[RoundContext, Proposed]:
    """Load a round and propose its candidates, without a cost model or searcher that fails.

    A part that fails is left out in all later attempts, too. Raises PluginFailed if candidates
    of this round were measured already or the fallback fails as well; LeaseLost if the lease
    is lost.
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
    """Return how well models ranked the round's candidates; empty if a cost model fails."""
    try:
        with blame_plugins(("cost_model", context.options.cost_model)):
            return rank(FeatureLookup(runtime.database, runtime.compiler), context)
    except PluginFailed as error:
        warn(runtime, context.row.job_id, error, "families are judged without it")
        return RoundStats()


def warn(runtime: Runtime, job_id: str, error: MallornError, instead: str) -> None:
    """Log an error and store it, with what is done `instead`, as a warning of the job."""
    log.warning("job %s: %s; %s", job_id, error.message, instead, exc_info=error)
    with runtime.database.transaction() as session:
        Warnings(session).add(job_id, _warning(error, instead))


def _leave_out(runtime: Runtime, round_id: int, token: Token, error: PluginFailed) -> None:
    log.warning("round %s: %s", round_id, error.message, exc_info=error)
    with runtime.database.transaction() as session:
        rounds = Rounds(session)
        row = rounds.get(round_id)
        is_model = error.seam == "cost_model"
        is_left_out = row.cost_model_id is None if is_model else row.searcher == SAFE_SEARCHER
        if is_left_out or rounds.done_slots(round_id):
            raise error
        instead = "candidates are proposed unguided" if is_model else f"{SAFE_SEARCHER} proposes instead"
        replacement = {"cost_model_id": None} if is_model else {"searcher": SAFE_SEARCHER}
        left_out = [*row.reason.without, LeftOut(name=error.name, why=error.message)]
        reason = row.reason.model_copy(update={"without": left_out})
        if not rounds.revise(round_id, token, reason=reason, **replacement):
            raise LeaseLost
        Warnings(session).add(row.job_id, _warning(error, instead))


def _warning(error: MallornError, instead: str) -> NewJobWarning:
    seam, name = getattr(error, "seam", ""), getattr(error, "name", "")
    source = f"{WORDS.get(seam, seam)} {name}".strip() or error.code
    message = error.message.removeprefix(f"the {source} ")  # the warning names it
    return NewJobWarning(source, f"{message}; {instead}", error.hint)
