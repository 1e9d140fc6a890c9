"""The candidates of a round: a pure function of what is stored with it."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from costmodels.analytic_draft import Draft
from costmodels.base import CostModel
from costmodels.views import WrongRows
from mallorn.core.errors import PluginFailed
from mallorn.core.plugin_errors import blame_plugins
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

SAFE_SEARCHER: Final = "random"  # asks neither a model nor a sampler
WIDER: Final = 3  # drafted candidates for each that a model that needs lowering may choose


Found = tuple[list[Proposal], State]


class Proposed(NamedTuple):
    """What a round measures, what each candidate is expected to be, and what the searcher keeps of it."""

    slots: list[MeasureInput]
    proposals: list[Proposal]
    state: State


def propose(viewer: FeatureLookup, context: RoundContext, validate: Validate | None = None) -> Proposed:
    """What the round measures.

    `validate` answers which candidates can be rebuilt; without it the viewer's compiler does.
    """
    # A model is asked by a searcher, so it is looked at first.
    model = [] if context.model_kind is None else [("cost_model", context.model_kind)]
    parts = *model, ("sampler", context.options.sampler), ("search", context.row.searcher)
    try:
        with blame_plugins(*parts):
            return _proposed(viewer, context, validate)
    except WrongRows as error:  # a model of a version whose view had other columns
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
    """Raise PluginFailed where the searcher broke its contract in a way that would break the round."""
    name, size = context.row.searcher, context.row.size
    candidates = [proposal.candidate for proposal in found if isinstance(proposal, Proposal)]
    sound = len(candidates) == len(found) and all(each.sketch in space.by_key for each in candidates)
    if not sound or len(set(candidates)) < len(found) or len(found) > size:
        raise PluginFailed(
            f"the searcher {name} must return at most {size} Proposals, of distinct candidates of its space",
            seam="search",
            name=name,
        )

    if state is not None and not (isinstance(state, bytes) and len(state) <= MOST_BYTES):
        said = f"the searcher {name} must leave at most {MOST_BYTES >> 10:,} KiB of bytes to its next round"
        raise PluginFailed(said, seam="search", name=name)


def _opened(context: RoundContext, space: Space, model: CostModel) -> Found:
    """A first round has the space's defaults alone, or a base would have no say: it gets half of the round.

    The other half are the constructor's first guesses: a base orders those no better than the constructor.
    A base that can do more than score opens with the searcher that asks it for that.
    """
    own = context.row.searcher
    searcher = own if own == SAFE_SEARCHER or model.opener is None else model.opener
    first = take(Filter(space, ()), space.defaults(), context.row.size // 2, DEFAULT)
    left, taken = context.row.size - len(first), pending(first)
    found, state = _searched(context, space, model, left, taken, searcher)
    told = [named(proposal, searcher) for proposal in found]
    return first + told, state if searcher == context.row.searcher else None


def _searched(
    context: RoundContext,
    space: Space,
    model: CostModel | None,
    count: int,
    taken: Sequence[Trial] = (),
    name: str | None = None,
) -> Found:
    name = name or context.row.searcher
    # The last resort must stand on nothing that may have failed.
    sampler = None if name == SAFE_SEARCHER else resolve("sampler", context.options.sampler)()
    searcher: Searcher = resolve("search", name)(sampler)
    given = space, [*context.history, *taken], model, count, np.random.default_rng(context.row.seed)
    if isinstance(searcher, StatefulSearcher):
        return searcher.propose_from(context.state, *given)
    return searcher.propose(*given), None


def _verified(viewer: FeatureLookup, context: RoundContext, space: Space, model: CostModel) -> Found:
    """The draft model screens thousands; those it likes are lowered, and the family's model chooses."""
    drafted, state = _searched(context, space, Draft(space.machine), WIDER * context.row.size)
    candidates = [proposal.candidate for proposal in drafted]
    seen = viewer.see(model.view, context.work(space.by_key), candidates)
    scores = model.predict(seen.rows).mean
    order = np.argsort(np.where(seen.known, -scores, np.inf), kind="stable")[: context.row.size]
    chosen = [
        Proposal(candidates[at], float(scores[at]) if seen.known[at] else None, drafted[at].origin)
        for at in order
    ]
    return chosen, state
