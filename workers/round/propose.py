"""Propose the candidates of a round, as a pure function of the round's stored inputs."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from costmodels.analytic_draft import Draft
from costmodels.base import CostModel
from costmodels.views import WrongRows
from mallorn.core.errors import PluginFailed
from mallorn.core.plugins import blame_plugins
from mallorn.core.registry import resolve
from searchers.base import DEFAULT, Proposal, Searcher, Trial, named
from searchers.fill_batch import Filter, pending, take, was_tried
from searchers.space import Space
from searchers.stateful import MOST_BYTES, State, StatefulSearcher
from workers.interfaces.candidate_compiler import Validate
from workers.measure.base import MeasureInput
from workers.round.feature_lookup import LOWERED, FeatureLookup
from workers.round.round_context import RoundContext
from workers.tvm.tvm_space import TvmSpace

SAFE_SEARCHER: Final = "random"  # uses neither a model nor a sampler
WIDER: Final = 3  # candidates drafted per candidate that a model of a lowered view chooses


Found = tuple[list[Proposal], State]


class Proposed(NamedTuple):
    """The candidates to measure, their proposals with predictions, and the state."""

    slots: list[MeasureInput]
    proposals: list[Proposal]
    state: State


def propose(viewer: FeatureLookup, context: RoundContext, validate: Validate | None = None) -> Proposed:
    """Return the candidates that the round measures. Raises PluginFailed if a plugin fails.

    `validate` returns which candidates can be rebuilt; by default the viewer's compiler checks
    that.
    """
    # The searcher calls the model, so an error is attributed to the model first.
    model = [] if context.model_kind is None else [("cost_model", context.model_kind)]
    parts = *model, ("sampler", context.options.sampler), ("search", context.row.searcher)
    try:
        with blame_plugins(*parts):
            return _proposed(viewer, context, validate)
    except WrongRows as error:  # the model was stored when its view had other columns
        seam, name = "cost_model", context.model_kind or ""
        raise PluginFailed(error.message, hint=error.hint, seam=seam, name=name) from error


def _proposed(viewer: FeatureLookup, context: RoundContext, validate: Validate | None) -> Proposed:
    sketches = viewer.compiler.design_space(context.program.tir, context.target.text)
    facts = context.target, context.descriptors, viewer.compiler, context.machine, validate
    work = context.work({sketch.key: sketch for sketch in sketches})
    space = TvmSpace(sketches, context.program, *facts, lambda view, seen: viewer.rows(view, work, seen))
    searcher: type[Searcher] = resolve("search", context.row.searcher)
    if context.model is not None and context.model.view in LOWERED and not searcher.compiles:
        found, state = _verified(viewer, context, space, context.model)
    elif context.model is not None and context.on_base and not was_tried(context.history):
        found, state = _opened(context, space, context.model)
    else:
        found, state = _searched(context, space, context.model, context.row.size)
    _check(found, state, space, context)
    proposals = [named(proposal, context.row.searcher) for proposal in found]
    slots = [
        MeasureInput(number, proposal.candidate, space.by_key[proposal.candidate.sketch])
        for number, proposal in enumerate(proposals)
    ]
    return Proposed(slots, proposals, state)


def _check(found: Sequence[Proposal], state: State, space: TvmSpace, context: RoundContext) -> None:
    """Raise PluginFailed if the searcher's proposals or its state break the contract."""
    name, size = context.row.searcher, context.row.size
    candidates = [proposal.candidate for proposal in found if isinstance(proposal, Proposal)]
    is_valid = len(candidates) == len(found) and all(each.sketch in space.by_key for each in candidates)
    if not is_valid or len(set(candidates)) < len(found) or len(found) > size:
        raise PluginFailed(
            f"the searcher {name} must return at most {size} Proposals, of distinct candidates of its space",
            seam="search",
            name=name,
        )

    if state is not None and not (isinstance(state, bytes) and len(state) <= MOST_BYTES):
        text = f"the searcher {name} must leave at most {MOST_BYTES >> 10:,} KiB of bytes to its next round"
        raise PluginFailed(text, seam="search", name=name)


def _opened(context: RoundContext, space: Space, model: CostModel) -> Found:
    """Propose a task's first round with a base model: half defaults, half chosen by the model.

    Without this, the first round would only have the space's defaults. The first half are the
    constructor's guesses, which a base model ranks no better than the constructor. A base
    model with an `opener` uses that searcher, which needs more than scores from it. The state
    is only returned if the round's own searcher ran.
    """
    round_searcher = context.row.searcher
    searcher = round_searcher if round_searcher == SAFE_SEARCHER or model.opener is None else model.opener
    first = take(Filter(space, ()), space.defaults(), context.row.size // 2, DEFAULT)
    left, taken = context.row.size - len(first), pending(first)
    found, state = _searched(context, space, model, left, taken, searcher)
    chosen = [named(proposal, searcher) for proposal in found]
    return first + chosen, state if searcher == context.row.searcher else None


def _searched(
    context: RoundContext,
    space: Space,
    model: CostModel | None,
    count: int,
    taken: Sequence[Trial] = (),
    name: str | None = None,
) -> Found:
    name = name or context.row.searcher
    # The fallback searcher must not depend on parts that may have failed.
    sampler = None if name == SAFE_SEARCHER else resolve("sampler", context.options.sampler)()
    searcher: Searcher = resolve("search", name)(sampler)
    arguments = space, [*context.history, *taken], model, count, np.random.default_rng(context.row.seed)
    if isinstance(searcher, StatefulSearcher):
        return searcher.propose_from(context.state, *arguments)
    return searcher.propose(*arguments), None


def _verified(viewer: FeatureLookup, context: RoundContext, space: Space, model: CostModel) -> Found:
    """Screen with the draft model, lower the best, and let the family's model choose."""
    drafted, state = _searched(context, space, Draft(space.machine), WIDER * context.row.size)
    candidates = [proposal.candidate for proposal in drafted]
    rows = viewer.see(model.view, context.work(space.by_key), candidates)
    scores = model.predict(rows.rows).mean
    order = np.argsort(np.where(rows.known, -scores, np.inf), kind="stable")[: context.row.size]
    chosen = [
        Proposal(candidates[i], float(scores[i]) if rows.known[i] else None, drafted[i].origin) for i in order
    ]
    return chosen, state
