"""The candidates of a round: a pure function of what is stored with it."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from costmodels.base import CostModel
from costmodels.checks import WrongRows
from costmodels.draft import Draft
from mallorn.core.errors import PluginFailed
from mallorn.core.names import resolve
from mallorn.core.plugins import blaming
from workers.faces.compiler import Validate
from workers.measure.base import Slot
from workers.round.context import RoundContext
from workers.round.viewing import LOWERED, Viewer
from workers.search.base import Proposal, Searcher, Trial
from workers.search.fill import Filter, pending, take
from workers.search.origins import DEFAULT, named
from workers.search.pooled import score
from workers.search.space import Space
from workers.tvm.space import TvmSpace, load_sketches

SAFE_SEARCHER: Final = "random"  # asks neither a model nor a sampler
WIDER: Final = 3  # drafted candidates for each that a model that needs lowering may choose


def propose(
    viewer: Viewer, context: RoundContext, validate: Validate | None = None
) -> tuple[list[Slot], list[Proposal]]:
    """What the round measures, and what each candidate was expected to be.

    `validate` answers which candidates can be rebuilt; without it the viewer's compiler does.
    """
    # A model is asked by a searcher, so it is looked at first.
    model = [] if context.model_kind is None else [("cost_model", context.model_kind)]
    parts = *model, ("sampler", context.options.sampler), ("search", context.row.searcher)
    try:
        with blaming(*parts):
            return _proposed(viewer, context, validate)
    except WrongRows as error:  # a model of a version whose view had other columns
        seam, name = "cost_model", context.model_kind or ""
        raise PluginFailed(error.message, hint=error.hint, seam=seam, name=name) from error


def _proposed(
    viewer: Viewer, context: RoundContext, validate: Validate | None
) -> tuple[list[Slot], list[Proposal]]:
    compiler = viewer.compiler
    sketches = load_sketches(compiler, context.program, context.target)
    facts = context.target, context.descriptors, compiler, context.machine, validate
    space = TvmSpace(sketches, context.program, *facts)
    if context.model is not None and context.model.view in LOWERED:
        found = _verified(viewer, context, space, context.model)
    elif context.model is not None and context.on_base and not context.history:
        found = _opened(context, space, context.model)
    else:
        found = _searched(context, space, context.model, context.row.size)
    _check(found, space, context)
    proposals = [named(proposal, context.row.searcher) for proposal in found]
    slots = [
        Slot(number, proposal.candidate, space.by_key[proposal.candidate.sketch])
        for number, proposal in enumerate(proposals)
    ]
    return slots, proposals


def _check(found: Sequence[Proposal], space: TvmSpace, context: RoundContext) -> None:
    """A searcher's contract, as far as a round would break on it."""
    candidates = [proposal.candidate for proposal in found if isinstance(proposal, Proposal)]
    sound = len(candidates) == len(found) and all(each.sketch in space.by_key for each in candidates)
    if not sound or len(set(candidates)) < len(found) or len(found) > context.row.size:
        name, size = context.row.searcher, context.row.size
        raise PluginFailed(
            f"the searcher {name} must return at most {size} Proposals, of distinct candidates of its space",
            seam="search",
            name=name,
        )


def _opened(context: RoundContext, space: Space, model: CostModel) -> list[Proposal]:
    """A first round has the space's defaults alone, or a base would have no say: it gets half of the round,
    and chooses the defaults that are the other half.
    """
    defaults = space.defaults()
    liked = np.argsort(-score(space, model, defaults).prediction.mean, kind="stable")
    half = context.row.size // 2
    first = take(Filter(space, ()), [defaults[at] for at in liked], half, DEFAULT)
    return first + _searched(context, space, model, context.row.size - len(first), pending(first))


def _searched(
    context: RoundContext,
    space: Space,
    model: CostModel | None,
    count: int,
    taken: Sequence[Trial] = (),
) -> list[Proposal]:
    # The last resort must stand on nothing that may have failed.
    sampler = None if context.row.searcher == SAFE_SEARCHER else resolve("sampler", context.options.sampler)()
    searcher: Searcher = resolve("search", context.row.searcher)(sampler)
    history = [*context.history, *taken]
    return searcher.propose(space, history, model, count, np.random.default_rng(context.row.seed))


def _verified(viewer: Viewer, context: RoundContext, space: Space, model: CostModel) -> list[Proposal]:
    """The draft model screens thousands; those it likes are lowered, and the family's model chooses."""
    drafted = _searched(context, space, Draft(space.machine), WIDER * context.row.size)
    candidates = [proposal.candidate for proposal in drafted]
    seen = viewer.see(model.view, context.work(space.by_key), candidates)
    scores = model.predict(seen.rows).mean
    order = np.argsort(np.where(seen.known, -scores, np.inf), kind="stable")[: context.row.size]
    return [
        Proposal(candidates[at], float(scores[at]) if seen.known[at] else None, drafted[at].origin)
        for at in order
    ]
