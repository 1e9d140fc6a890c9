"""Propose a round's candidates from its stored inputs, leaving out plugins that fail."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import isfinite
from sys import maxsize
from typing import Final, NamedTuple

import numpy as np

from mallorn.core.check_plugin_classes import convert_plugin_errors
from mallorn.core.errors import LeaseLost, MallornError, PluginFailed, Unavailable
from mallorn.core.registry import WORDS, resolve
from mallorn.core.values.decision_log import SkippedPart
from mallorn.costmodels.analytic_models import Draft
from mallorn.costmodels.base import CostModel
from mallorn.costmodels.views import WrongRows
from mallorn.db.repositories.job_events_and_warnings import NewJobWarning, Warnings
from mallorn.db.repositories.leases import Leases, LeaseToken
from mallorn.db.repositories.rounds import Rounds
from mallorn.db.repositories.trials import NEWEST
from mallorn.searchers.base import DEFAULT, Proposal, Searcher, Trial, prefix_origin
from mallorn.searchers.fill_round import Filter, as_pending_trials, propose_first_valid, was_tried
from mallorn.searchers.space import Candidate, Sketch, Space
from mallorn.workers.interfaces.candidate_compiler import Validate
from mallorn.workers.measure.measurer_interface import MeasureInput, number_candidates
from mallorn.workers.measure.tvm_space import TvmSpace
from mallorn.workers.process.worker_runtime import Runtime
from mallorn.workers.round.feature_lookup import LOWERED, FeatureLookup
from mallorn.workers.round.loaded_round import LoadedRound, find_tried, load_round

SAFE_SEARCHER: Final = "random"  # uses neither a model nor a sampler
WIDER: Final = 3  # candidates drafted per candidate that a model of a lowered view chooses
WIDER_WITHOUT_DRAFT: Final = 4  # the same where no analytic model drafts candidates
log = logging.getLogger(__name__)


class Proposed(NamedTuple):
    """The candidates to measure, and their proposals."""

    inputs: Sequence[MeasureInput]
    proposals: list[Proposal]


def prepare_round(runtime: Runtime, hold: LeaseToken) -> tuple[LoadedRound, Proposed]:
    """Load a round, propose its candidates and store them; later attempts read them. While
    other rounds have some of them, propose again. If the cost model or searcher fails, propose
    without it, store a warning for the job, and let later attempts leave it out, too.

    Raises PluginFailed if candidates of this round were measured already or the fallback
    fails; LeaseLost if another attempt has the round; Unavailable if all untried candidates
    are in other rounds.
    """
    round_id = int(hold.item.subject)
    taken: list[Trial] = []
    while True:
        try:
            with runtime.database.session() as session:
                loaded = load_round(session, round_id, is_new=hold.attempt == 1)
            history, pending = (*loaded.history, *taken), (*loaded.pending, *taken)
            round_ = replace(loaded, history=history, pending=pending)
            lookup = FeatureLookup(runtime.database, runtime.compiler, runtime.lower)
            proposed = propose(lookup, round_, runtime.validator(round_.target))
            if not proposed.proposals and round_.waits_for_pending:
                raise Unavailable(f"other rounds have all untried candidates of {round_.task_name}")
            if proposed.proposals == (round_.row.proposals or []):
                return round_, proposed
            conflicts = _store_proposals(runtime, hold, round_, proposed.proposals)
            if conflicts is None:
                return round_, proposed
            taken += as_pending_trials(conflicts)
        except PluginFailed as error:
            log.warning("round %s: %s", round_id, error.message, exc_info=error)
            with runtime.database.transaction() as session:
                rounds = Rounds(session)
                row = rounds.get(round_id)
                is_model = error.seam == "cost_model"
                names = {part.name for part in row.reason.skipped_parts}
                is_left_out = error.name in names if is_model else row.searcher == SAFE_SEARCHER
                if is_left_out or rounds.done_slots(round_id):
                    raise
                left_out = [*row.reason.skipped_parts, SkippedPart(name=error.name, reason=error.message)]
                reason = row.reason.model_copy(update={"skipped_parts": left_out})
                replacement = {"cost_model_id": None} if is_model else {"searcher": SAFE_SEARCHER}
                if not rounds.change_inputs(hold, reason=reason, **replacement):
                    raise LeaseLost from error
                words = (
                    "candidates are proposed unguided" if is_model else f"{SAFE_SEARCHER} proposes instead"
                )
                Warnings(session).add(row.job_id, _warning(error, words))


def _store_proposals(
    runtime: Runtime, hold: LeaseToken, round_: LoadedRound, proposals: Sequence[Proposal]
) -> Sequence[Proposal] | None:
    """Store a round's proposals and return None. If other rounds have some of them, or have
    measured them meanwhile, return these instead; none if another round stored just now.

    Raises LeaseLost if another attempt has the round.
    """
    row, candidates = round_.row, {proposal.candidate for proposal in proposals}
    # If the space lacks candidates because others have them, they may be free later.
    size = len(proposals) if round_.waits_for_pending else row.size
    storable = [_storable(proposal) for proposal in proposals]
    with runtime.database.transaction() as session:
        rounds = Rounds(session)
        in_flight = {each.id: each.proposals or () for each in rounds.lock_in_flight(row)}
        store = partial(rounds.store_proposals, hold, in_flight, proposals=storable, size=size)
        others = [stored for round_id, stored in in_flight.items() if round_id != row.id]
        taken = {each.candidate for stored in others for each in stored}
        if candidates.isdisjoint(taken):
            if store(row.seen_upto):
                return None
            taken = find_tried(session, round_, candidates, None)
            if not taken and store(maxsize):
                return None
            if not taken and not Leases(session).holds(hold):
                raise LeaseLost
    return [proposal for proposal in proposals if proposal.candidate in taken]


def _storable(proposal: Proposal) -> Proposal:
    """Return a proposal in Python's own numbers, which JSON can hold."""
    score, decisions = proposal.predicted, tuple(map(int, proposal.candidate.decisions))
    predicted = float(score) if score is not None and isfinite(score) else None
    return Proposal(Candidate(proposal.candidate.sketch, decisions), predicted, proposal.origin)


def warn(runtime: Runtime, job_id: str, error: MallornError, instead: str) -> None:
    """Log an error, and store it with what is done `instead` as a warning of the job."""
    log.warning("job %s: %s; %s", job_id, error.message, instead, exc_info=error)
    with runtime.database.transaction() as session:
        Warnings(session).add(job_id, _warning(error, instead))


def _warning(error: MallornError, instead: str) -> NewJobWarning:
    seam, name = getattr(error, "seam", ""), getattr(error, "name", "")
    source = f"{WORDS.get(seam, seam)} {name}".strip() or error.code
    message = error.message.removeprefix(f"the {source} ")  # the warning names it
    return NewJobWarning(source, f"{message}; {instead}", error.hint)


def propose(lookup: FeatureLookup, round_: LoadedRound, validate: Validate | None = None) -> Proposed:
    """Return the candidates that the round measures. `validate` returns which candidates
    can be rebuilt; by default the compiler does. Raises PluginFailed if a plugin fails."""
    # The searcher calls the model, so an error is attributed to the model first.
    model = [] if round_.model_kind is None else [("cost_model", round_.model_kind)]
    parts = *model, ("sampler", round_.options.sampler), ("search", round_.row.searcher)
    try:
        with convert_plugin_errors(*parts):
            return _propose(lookup, round_, validate)
    except WrongRows as error:  # the model was stored when its view had other columns
        seam, name = "cost_model", round_.model_kind or ""
        raise PluginFailed(error.message, hint=error.hint, seam=seam, name=name) from error


def _propose(lookup: FeatureLookup, round_: LoadedRound, validate: Validate | None) -> Proposed:
    sketches = lookup.compiler.design_space(round_.program.tir, round_.target.text)
    by_key = {sketch.key: sketch for sketch in sketches}
    stored = round_.row.proposals
    if stored and all(each.candidate.sketch in by_key for each in stored):
        return _number(stored, by_key)

    def tried(candidates: Sequence[Candidate]) -> set[Candidate]:
        with lookup.database.session() as session:
            return find_tried(session, round_, candidates, round_.row.seen_upto)

    work = round_.work(by_key)
    space = TvmSpace(
        sketches,
        round_.program,
        round_.target,
        round_.descriptors,
        lookup.compiler,
        round_.machine,
        validate,
        lambda view, candidates: lookup.rows(view, work, candidates),
        tried if len(round_.history) >= NEWEST else None,
    )
    name, size, model = round_.row.searcher, round_.row.size, round_.model
    searcher: type[Searcher] = resolve("search", name)
    if model is not None and model.view in LOWERED and not searcher.compiles:
        proposals = _screen_then_lower(lookup, round_, space, model)
    elif model is not None and round_.on_base and not was_tried(round_.history):
        proposals = _propose_first_round(round_, space, model)
    else:
        proposals = _search(round_, space, model, size)

    candidates = [proposal.candidate for proposal in proposals if isinstance(proposal, Proposal)]
    pending = {trial.candidate for trial in round_.pending}
    is_valid = all(c.sketch in by_key and c not in pending for c in candidates)
    if not is_valid or len(set(candidates)) < len(proposals) or len(proposals) > size:
        raise PluginFailed(
            f"the searcher {name} must return at most {size} Proposals, "
            "of distinct candidates of the space that are in no other round",
            seam="search",
            name=name,
        )
    return _number([prefix_origin(proposal, name) for proposal in proposals], by_key)


def _number(proposals: Sequence[Proposal], sketches: Mapping[str, Sketch]) -> Proposed:
    places = ((each.candidate, sketches[each.candidate.sketch]) for each in proposals)
    return Proposed(number_candidates(places), list(proposals))


def _propose_first_round(round_: LoadedRound, space: Space, model: CostModel) -> list[Proposal]:
    """Propose a task's first round if its cost model is a base (pre-trained) model: half
    space defaults, half candidates that the base ranks best. The base ranks the defaults no
    better than the analytic model that made them. If the base names a searcher (`opener`),
    that one runs."""
    round_searcher = round_.row.searcher
    searcher = round_searcher if round_searcher == SAFE_SEARCHER or model.opener is None else model.opener
    defaults = propose_first_valid(Filter(space, ()), space.defaults(), round_.row.size // 2, DEFAULT)
    count = round_.row.size - len(defaults)
    proposals = _search(round_, space, model, count, as_pending_trials(defaults), searcher)
    return defaults + [prefix_origin(proposal, searcher) for proposal in proposals]


def _screen_then_lower(
    lookup: FeatureLookup, round_: LoadedRound, space: Space, model: CostModel
) -> list[Proposal]:
    """Preselect with an analytic model or, where the hardware has none, let the searcher propose
    without a model; then lower these candidates for the cost model to choose from. Without
    a draft a task's first round begins with the space's defaults."""
    hardware = round_.target.measured_by
    has_draft = hardware is None or hardware.drafts_candidates
    draft, factor = (Draft(space.machine), WIDER) if has_draft else (None, WIDER_WITHOUT_DRAFT)
    defaults: list[Proposal] = []
    if not has_draft and not was_tried(round_.history):
        defaults = propose_first_valid(Filter(space, ()), space.defaults(), round_.row.size // 2, DEFAULT)
    size = round_.row.size - len(defaults)
    drafts = _search(round_, space, draft, factor * size, as_pending_trials(defaults))
    candidates = [proposal.candidate for proposal in drafts]
    rows, is_known = lookup.look_up_features(model.view, round_.work(space.by_key), candidates)
    scores = model.predict(rows).mean
    order = np.argsort(np.where(is_known, -scores, np.inf), kind="stable")[:size]
    proposals = [
        Proposal(candidates[i], float(scores[i]) if is_known[i] else None, drafts[i].origin) for i in order
    ]
    return defaults + proposals


def _search(
    round_: LoadedRound,
    space: Space,
    model: CostModel | None,
    count: int,
    pending_trials: Sequence[Trial] = (),
    name: str | None = None,
) -> list[Proposal]:
    name = name or round_.row.searcher
    # The fallback searcher must not depend on parts that may have failed.
    sampler = None if name == SAFE_SEARCHER else resolve("sampler", round_.options.sampler)()
    searcher: Searcher = resolve("search", name)(sampler)
    history, rng = [*round_.history, *pending_trials], np.random.default_rng(round_.row.seed)
    return searcher.propose(space, history, model, count, rng)
