"""The candidates of a round: a pure function of what is stored with it."""

import numpy as np

from mallorn.core.names import resolve
from workers.children.child import Child
from workers.measure.base import Slot
from workers.round_context import RoundContext
from workers.search.base import Proposal, Searcher
from workers.search.origins import named
from workers.tvm.space import TvmSpace, load_sketches


def propose(compiler: Child, context: RoundContext) -> tuple[list[Slot], list[Proposal]]:
    """What the round measures, and what each candidate was expected to be."""
    sketches = load_sketches(compiler, context.program, context.target)
    space = TvmSpace(sketches, context.program, context.target, context.descriptors, compiler)
    sampler = resolve("sampler", context.options.sampler)()
    searcher: Searcher = resolve("search", context.row.searcher)(sampler)
    rng = np.random.default_rng(context.row.seed)
    found = searcher.propose(space, context.history, context.model, context.row.size, rng)
    proposals = [named(proposal, context.row.searcher) for proposal in found]
    slots = [
        Slot(number, proposal.candidate, space.by_key[proposal.candidate.sketch])
        for number, proposal in enumerate(proposals)
    ]
    return slots, proposals
