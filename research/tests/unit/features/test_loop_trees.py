"""Loop trees are read from traces alone: here they are held against the loops that TVM makes."""

from collections.abc import Iterator

import numpy as np
import pytest
from tvm.s_tir.schedule import Trace

from mallorn.costmodels.views import LOOPS
from mallorn.searchers.decision_space import SketchRules
from mallorn.searchers.space import ChoiceKind, Matrix, Sketch
from mallorn.workers.tvm.programs.parsed_program_cache import instructions, new_schedule
from mallorn.workers.tvm.space.rebuild_schedule import map_choices_to_decisions
from mallorn.workers.tvm.space.sketches import design_space
from mallorn_research.features.loop_tree_view import BLOCK, INLINED, ORDINAL, TILED, LoopsView
from mallorn_research.features.resolved_trace import steps_of
from research.tests.unit.features.loop_trees import extents_above
from tests.unit.tvm_space.programs import TARGET, conv2d, matmul, softmax

PROGRAMS = {
    "matmul": (matmul(), (32, 64, 48)),
    "softmax": (softmax(), (16, 64)),
    "conv2d": (conv2d(), (1, 14, 14, 48, 3, 3, 32)),
}


def sketches(tir: str) -> Iterator[Sketch]:
    yield from design_space(tir, TARGET)


def real_loops(tir: str, sketch: Sketch, decisions: list[int], block: str) -> list[int]:
    insts = instructions(tir, sketch.trace)
    schedule = new_schedule(tir)
    Trace(insts, map_choices_to_decisions(insts, decisions)).apply_to_schedule(
        schedule, remove_postproc=False
    )
    extents = (int(schedule.get(loop).extent) for loop in schedule.get_loops(schedule.get_sblock(block)))
    return [extent for extent in extents if extent > 1]


def table(sketch: Sketch, extents: tuple[int, ...], decisions: list[int]) -> Matrix:
    work = (20.0, *np.log2(1 + np.array(extents, dtype=np.float64)).tolist())
    return LOOPS.tables(LoopsView().extract_rows(sketch, work, np.array([decisions], dtype=np.int32)))[0]


@pytest.mark.parametrize("name", ["matmul", "conv2d"])
def test_the_tiled_block_lies_in_the_loops_that_tvm_makes(name: str) -> None:
    tir, extents = PROGRAMS[name]
    for sketch in sketches(tir):
        for decisions in SketchRules(sketch).sample(np.random.default_rng(2), 6).tolist():
            lines = table(sketch, extents, decisions)
            (main,) = np.flatnonzero(lines[:, TILED])
            tiled = next(step.names[0] for step in steps_of(sketch) if step.kind == "Annotate")
            block = next(step.attrs[0] for step in steps_of(sketch) if step.outputs == (tiled,))
            assert extents_above(lines, main) == real_loops(tir, sketch, decisions, block)


def test_blocks_of_a_chain_that_nobody_moved_lie_in_their_own_loops() -> None:
    tir, extents = PROGRAMS["softmax"]
    for sketch in sketches(tir):
        where = [choice.kind is ChoiceKind.LOCATION for choice in sketch.choices for _ in range(choice.width)]
        for decisions in SketchRules(sketch).sample(np.random.default_rng(2), 4).tolist():
            stay = [-1 if moves else value for moves, value in zip(where, decisions, strict=True)]
            lines = table(sketch, extents, stay)
            names = [step.attrs[0] for step in steps_of(sketch) if step.kind == "GetSBlock"]
            last = np.flatnonzero(lines[:, BLOCK] * (1 - lines[:, INLINED]))
            at = last[lines[last, ORDINAL].argmax()]
            assert extents_above(lines, at) == real_loops(tir, sketch, stay, names[-2])
