"""TvmSpace over the real compiler child: the parent needs no TVM, and a dying child costs one candidate."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest

from mallorn.core.targets import Target
from mallorn.searchers.space import Candidate
from mallorn.workers.interfaces.candidate_compiler import CandidateCompiler
from mallorn.workers.interfaces.tensor_arguments import Arguments
from mallorn.workers.measure.measurer_interface import Program
from mallorn.workers.measure.tvm_space import TvmSpace
from mallorn.workers.subprocesses.errors import ChildCrashed
from mallorn.workers.subprocesses.pending_call import Call
from tests.unit.tvm_space.programs import TARGET, matmul, negate, softmax

R = TypeVar("R")
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def compiler() -> Iterator[CandidateCompiler]:
    with CandidateCompiler() as child:
        yield child


def space_of(compiler: CandidateCompiler, tir: str) -> TvmSpace:
    program, target = Program("key", tir, Arguments(()), 1.0), Target(TARGET)
    return TvmSpace(compiler.design_space(program.tir, target.text), program, target, (), compiler)


@pytest.mark.parametrize("tir", [matmul(), softmax(), negate()], ids=["matmul", "softmax", "negate"])
def test_defaults_are_valid_distinct_and_well_formed(compiler: CandidateCompiler, tir: str) -> None:
    space = space_of(compiler, tir)
    defaults = space.defaults()
    assert defaults
    assert len(set(defaults)) == len(defaults)
    assert all(space.well_formed(defaults))
    assert all(space.valid(defaults))


def test_what_is_sampled_mutated_and_crossed_can_be_rebuilt(compiler: CandidateCompiler) -> None:
    space = space_of(compiler, matmul())
    rng = np.random.default_rng(3)
    parents = space.sample(rng, 8)
    children = [space.mutate(rng, parent) for parent in parents]
    crossed = [space.cross(rng, *pair) for pair in zip(parents, children, strict=True)]
    assert all(space.valid([*parents, *children, *crossed]))


@pytest.mark.usefixtures("executed_children")
def test_a_fresh_child_gives_the_same_space(compiler: CandidateCompiler) -> None:
    with CandidateCompiler() as other:
        assert space_of(other, softmax()).sketches == space_of(compiler, softmax()).sketches


class Fragile(CandidateCompiler):
    """A compiler that one candidate kills."""

    deadly: tuple[int, ...] = ()

    def ask(self, call: Call[R]) -> R:
        if call.method == "validate" and list(self.deadly) in [
            decisions for _, decisions in json.loads(call.params)["candidates"]
        ]:
            self.kill()
            raise ChildCrashed("compiler died of SIGSEGV")
        return super().ask(call)


def test_a_candidate_that_kills_the_compiler_is_alone_invalid() -> None:
    with Fragile() as compiler:
        space = space_of(compiler, matmul())
        candidates: list[Candidate] = space.defaults()[:3]
        compiler.deadly = candidates[1].decisions
        assert space.valid(candidates) == [c.decisions != compiler.deadly for c in candidates]


def test_the_worker_itself_loads_no_tvm() -> None:
    script = "import sys, mallorn.workers.measure.tvm_space; sys.exit('tvm' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=False).returncode == 0
