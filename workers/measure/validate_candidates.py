"""Validates candidates in the builders, in parallel.

The builder that validates a candidate also builds it, because it still has the schedule.
"""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Final

from mallorn.core.errors import MallornError
from mallorn.workers.interfaces.candidate_compiler import CandidateCompiler, Candidates
from mallorn.workers.subprocesses.process_pool import ChildPool

POLL_SEC: Final = 1.0


def choose_builder(decisions: Sequence[int], builders: int) -> int:
    """Return the index of the builder that validates and builds a candidate."""
    return hash(tuple(decisions)) % builders


def validate_in_builders(
    builders: ChildPool[list[bool]], tir: str, target: str, candidates: Candidates
) -> list[bool]:
    """Return for each candidate whether it can be rebuilt. The builders must have no other
    tasks. Raises the errors of `CandidateCompiler.validate`."""
    shares: dict[int, list[int]] = defaultdict(list)
    for index, (_, decisions) in enumerate(candidates):
        shares[choose_builder(decisions, builders.size)].append(index)
    for place, share in shares.items():
        call = CandidateCompiler.validate.make_call(tir, target, [candidates[index] for index in share])
        builders.submit(call, place, place)
    ends: dict[Hashable, list[bool] | MallornError] = {}
    while builders.tags:  # wait for all tasks, so that a failure leaves none behind
        ends |= {call.tag: call.end for call in builders.poll(POLL_SEC)}
    answers: dict[int, bool] = {}
    for place, share in shares.items():
        end = ends[place]
        if isinstance(end, MallornError):
            raise end
        answers |= zip(share, end, strict=True)
    return [answers[index] for index in range(len(candidates))]
