"""The loop tree: loops that run once are gone, blocks hang where they are computed."""

import numpy as np
import pytest

from mallorn.costmodels.views import LOOPS
from mallorn.searchers.space import Matrix, Sketch
from mallorn_research.features.loop_tree_view import (
    BLOCK,
    DEPTH,
    EXTENT,
    INLINED,
    LANES,
    PARALLEL,
    PARENT,
    REACH,
    REDUCTION,
    ROOT,
    SPATIAL,
    STAGE,
    TILED,
    UNROLL,
    VECTOR,
    LoopsView,
)
from research.tests.unit.features.loop_trees import extents_above
from tests.unit.features.sketches import PRODUCT_WORK, SUM_WORK, factored, product

TREE = LoopsView()


def table(sketch: Sketch, *decisions: int, work: tuple[float, ...] = PRODUCT_WORK) -> Matrix:
    lines = LOOPS.tables(TREE.extract_rows(sketch, work, np.array([decisions], dtype=np.int32)))[0]
    return lines[lines[:, 0] == 1]


def leaves(lines: Matrix) -> list[int]:
    return np.flatnonzero(lines[:, BLOCK]).tolist()


def test_loops_stand_in_the_order_of_the_schedule_without_those_that_run_once() -> None:
    lines = table(product("l20"), 2, 4, 1, 4, 8, 1, 4, 2, 12, 4, 1)
    (main,) = np.flatnonzero(lines[:, TILED])
    assert extents_above(lines, main) == [2, 8, 4, 12, 4, 4, 4, 2]


def test_the_parent_of_a_line_stands_before_it_and_only_the_root_has_none() -> None:
    lines = table(product("l19"), 2, 4, 1, 4, 8, 1, 4, 2, 12, 4, 1)
    assert lines[0, PARENT] == -1
    assert lines[0, ROOT] == 1
    assert (lines[1:, PARENT] >= 0).all()
    assert (lines[1:, PARENT] < np.arange(1, len(lines))).all()
    assert (lines[:, [ROOT, SPATIAL, REDUCTION, BLOCK]].sum(axis=1) == 1).all()


@pytest.mark.parametrize(("loop", "above"), [("l20", [2, 8, 4, 3]), ("l19", [2, 8])])
def test_a_block_hangs_from_the_loop_that_it_is_moved_into(loop: str, above: list[int]) -> None:
    lines = table(product(loop), 2, 4, 1, 4, 8, 3, 1, 2, 12, 4, 1)
    _, relu = leaves(lines)
    assert extents_above(lines, relu) == above
    assert lines[relu, DEPTH] > 0


def test_iterations_add_up_from_the_root() -> None:
    lines = table(product("l20"), 2, 4, 1, 4, 8, 1, 4, 2, 12, 4, 1)
    (main,) = np.flatnonzero(lines[:, TILED])
    assert 2 ** lines[main, REACH] == pytest.approx(32 * 64 * 48, rel=1e-4)


def test_reductions_are_told_from_other_loops() -> None:
    lines = table(product("l20"), 2, 4, 1, 4, 8, 1, 4, 2, 12, 4, 1)
    assert sorted(np.rint(2 ** lines[lines[:, REDUCTION] == 1, EXTENT]).tolist()) == [4, 12]


def test_outer_loops_are_parallel_until_there_are_enough() -> None:
    few = table(product("l20"), 2, 4, 1, 4, 8, 1, 4, 2, 12, 4, 1)  # 2 * 8 = 16 pieces, then 4 times as many
    many = table(product("l20"), 2, 4, 1, 4, 32, 1, 1, 2, 12, 4, 1)  # 2, then 64: more than 32
    assert np.rint(2 ** few[few[:, PARALLEL] == 1, EXTENT]).tolist() == [2, 8]
    assert np.rint(2 ** many[many[:, PARALLEL] == 1, EXTENT]).tolist() == [2]


def test_inner_loops_are_vectors_until_these_are_too_long() -> None:
    short = table(product("l20"), 2, 4, 1, 4, 4, 1, 1, 16, 12, 4, 1)  # 4 rows of 16 in one vector of 64
    long = table(product("l20"), 1, 2, 1, 16, 4, 1, 1, 16, 12, 4, 1)
    assert np.rint(2 ** short[short[:, VECTOR] == 1, EXTENT]).tolist() == [4, 16]
    assert np.rint(2 ** long[long[:, VECTOR] == 1, EXTENT]).tolist() == [16]


def test_lanes_are_the_power_of_two_in_an_extent() -> None:
    lines = table(product("l20"), 32, 1, 1, 1, 1, 1, 1, 64, 4, 12, 1)
    by_extent = {round(2 ** line[EXTENT]): 2 ** line[LANES] for line in lines if line[EXTENT]}
    assert by_extent == {32: 32, 64: 64, 4: 4, 12: 4}


def test_the_root_knows_how_far_bodies_are_unrolled() -> None:
    lines = table(product("l20"), 2, 4, 1, 4, 8, 1, 4, 2, 12, 4, 3)
    assert lines[0, UNROLL] == np.float32(np.log2(513))


def test_partial_sums_keep_their_loops_wherever_they_go() -> None:
    lines = table(factored("l7"), 4, 32, 0, -1, -1, work=SUM_WORK)
    partial, total, scale = leaves(lines)
    assert lines[[partial, total, scale], STAGE].tolist() == [1, 0, 0]
    assert extents_above(lines, partial) == [16, 4, 32]
    assert extents_above(lines, total) == [16, 4]
    assert extents_above(lines, scale) == [16, 128]
    moved = table(factored("l7"), 4, 32, 0, 0, 0, work=SUM_WORK)
    assert extents_above(moved, leaves(moved)[0]) == [16, 4, 32]
    assert moved[:, PARENT].tolist().count(0) == 1  # all three lie in the loop over rows


def test_an_inlined_block_is_seen_and_costs_nothing() -> None:
    lines = table(factored("l7"), 4, 32, 0, -2, -1, work=SUM_WORK)
    (inlined,) = np.flatnonzero(lines[:, INLINED])
    assert lines[inlined, PARENT] == 0
    assert lines[inlined, REACH] == 0
