"""The first guess of each program for a GPU, of our own kinds of sketches, is valid."""

import pytest

from mallorn.core.values.machine import assume_typical_gpu
from mallorn.searchers.roller.rank_candidates import ranked
from mallorn.workers.tvm.loop_nests import nests
from mallorn.workers.tvm.rebuild_schedule import validate
from mallorn.workers.tvm.sketches import design_space
from tests.unit.tvm_space.cuda_programs import ARCHS, PROGRAMS, target

OTHER_ARCHS = [pytest.param(arch, marks=pytest.mark.long) for arch in ARCHS[:-1]]


@pytest.mark.slow
@pytest.mark.parametrize("arch", [*OTHER_ARCHS, ARCHS[-1]])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_first_guess_of_our_own_kinds_is_valid(name: str, arch: str) -> None:
    tir = PROGRAMS[name]()
    sketches = {sketch.key: sketch for sketch in design_space(tir, target(arch))}
    guesses = ranked(list(sketches.values()), nests(tir), assume_typical_gpu(arch), 8)
    ours = [guess for guess in guesses if sketches[guess.sketch].facts][:1]
    traces = [(sketches[guess.sketch].trace, guess.decisions) for guess in ours]
    assert validate(tir, target(arch), traces) == [True] * len(ours)
