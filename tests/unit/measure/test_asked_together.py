"""Candidates that are asked about in one call: each has its own answer, whatever another one does."""

from collections.abc import Sequence
from typing import cast

import pytest

from mallorn.core.targets import Target
from mallorn.core.values.machine import assume_typical_cpu
from mallorn.searchers.space import Candidate, Sketch
from mallorn.workers.interfaces.candidate_compiler import CandidateCompiler, Candidates
from mallorn.workers.interfaces.tensor_arguments import Arguments
from mallorn.workers.measure.measurer_interface import Program
from mallorn.workers.measure.tvm_space import TvmSpace
from mallorn.workers.subprocesses.errors import ChildCrashed, ChildError, ChildTimeout

PROGRAM = Program("key", "the program", Arguments(()), 1.0)


@pytest.mark.parametrize(
    "error", [ChildCrashed("compiler died"), ChildTimeout("compiler took longer than 23 s")]
)
def test_a_candidate_that_ends_the_compiler_takes_no_other_with_it(error: ChildError) -> None:
    asked: list[int] = []

    def validate(tir: str, target: str, candidates: Candidates) -> Sequence[bool]:
        asked.append(len(candidates))
        if any(decisions == (1,) for _, decisions in candidates):
            raise error
        return [True] * len(candidates)

    facts = Target("t"), (), cast("CandidateCompiler", None), assume_typical_cpu(2, 16)
    space = TvmSpace([Sketch("s", "the trace", ())], PROGRAM, *facts, validate=validate)
    assert space.valid([Candidate("s", (n,)) for n in range(3)]) == [True, False, True]
    assert asked == [3, 1, 1, 1]  # once more, each alone
