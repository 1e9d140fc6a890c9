"""Candidates checked by the builders, all at once: the one that found a candidate valid builds it, too.

It has the schedule still, so that nothing is rebuilt twice.
"""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Final

from mallorn.core.errors import MallornError
from workers.interfaces.candidate_compiler import CandidateCompiler, Candidates
from workers.subprocesses.process_pool import ChildPool

POLL_SEC: Final = 1.0


def home(decisions: Sequence[int], builders: int) -> int:
    """The place of the builder that a candidate is for."""
    return hash(tuple(decisions)) % builders


def validate(builders: ChildPool[list[bool]], tir: str, target: str, candidates: Candidates) -> list[bool]:
    """Whether each candidate can be rebuilt; no builder may have a task.

    Raises what `Compiler.validate` does.
    """
    shares: dict[int, list[int]] = defaultdict(list)
    for at, (_, decisions) in enumerate(candidates):
        shares[home(decisions, builders.size)].append(at)
    for place, share in shares.items():
        asked = CandidateCompiler.validate.of(tir, target, [candidates[at] for at in share])
        builders.submit(asked, place, place)
    ends: dict[Hashable, list[bool] | MallornError] = {}
    while builders.tags:  # to the end of every task: one that fails leaves no other behind
        ends |= {finished.tag: finished.end for finished in builders.poll(POLL_SEC)}
    answers: dict[int, bool] = {}
    for place, share in shares.items():
        end = ends[place]
        if isinstance(end, MallornError):
            raise end
        answers |= zip(share, end, strict=True)
    return [answers[at] for at in range(len(candidates))]
