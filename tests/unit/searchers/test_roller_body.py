"""The straight code of a tiled block: what is written out, kept in registers, loaded once, spilled."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mallorn.core.values.machine import Machine, assume_typical_cpu
from mallorn.searchers.loop_nest import (
    Access,
    Axis,
    Nest,
    fold_nest,
    is_read_across_rows,
    matrix_product_nest,
)
from mallorn.searchers.roller.cpu_time_model import (
    LOADED,
    NUMBERS,
    UNROLLED,
    Body,
    Loops,
    computing_us,
    moving_us,
    result_us,
)

WIDE, NARROW = assume_typical_cpu(cores=1, lanes=16), assume_typical_cpu(cores=1, lanes=8)
VECTOR, NUMBER = LOADED, WIDE.in_flight / NUMBERS  # its nearest cache gives a vector for each operation
MATMUL = matrix_product_nest((64, 64), (512,))


def depthwise(rows: int, channels: int) -> Nest:
    """A window of three by three that slides over rows of channels."""
    axes = (Axis(rows), Axis(1), Axis(channels), Axis(3, reduced=True), Axis(3, reduced=True))
    read = Access((rows + 2, 3, channels), (((0, 1), (3, 1)), ((1, 1), (4, 1)), ((2, 1),)))
    weight = Access((3, 3, channels), (((3, 1),), ((4, 1),), ((2, 1),)))
    write = Access((rows, 1, channels), (((0, 1),), ((1, 1),), ((2, 1),)))
    return Nest(axes, (read, weight), write)


def window(lanes: int, rows: int, high: int, wide: int) -> Loops:
    """A tile of rows of one vector, with so much of the window beside them."""
    vector = [1, 16, 1, lanes]
    tiles = [[1, 16, 1, rows, 1, 1, 1, 1, *vector, 3 // high, high, 3 // wide, wide]]
    return Loops(depthwise(16 * rows, 16 * lanes), np.array(tiles, dtype=np.int32))


def matmul(*row: int) -> Loops:
    return Loops(MATMUL, np.array([row], dtype=np.int32))


def test_rows_of_a_window_that_is_written_out_are_loaded_once() -> None:
    """Seven sums need nine rows, not three times seven."""
    whole = Body(window(16, rows=7, high=3, wide=1), WIDE, 16)
    assert whole.load_cost[0] == pytest.approx(VECTOR * (9 * 3 + 9) / (7 * 9))
    assert whole.spilled_operand_count[0] == 0


@pytest.mark.parametrize(("machine", "spills"), [(WIDE, False), (NARROW, True)], ids=["wide", "narrow"])
def test_what_is_loaded_for_later_is_spilled_where_there_is_no_register(
    machine: Machine, spills: bool
) -> None:
    body = Body(window(machine.lanes, rows=7, high=3, wide=3), machine, 64)
    assert (body.spilled_operand_count[0] > 0) == spills


def test_a_matrix_is_loaded_once_for_the_tiles_side_by_side() -> None:
    alone, beside = matmul(1, 16, 1, 4, 1, 4, 1, 16, 512, 1), matmul(1, 8, 2, 4, 1, 4, 1, 16, 512, 1)
    assert Body(alone, WIDE, 0).load_cost[0] == pytest.approx((4 * NUMBER + VECTOR) / 4)
    assert Body(beside, WIDE, 0).load_cost[0] == pytest.approx((8 * NUMBER + VECTOR) / 8)


def test_a_sum_stays_in_its_register_through_loops_of_sums_alone() -> None:
    straight = Body(matmul(1, 16, 1, 4, 1, 4, 1, 16, 8, 64), WIDE, 0)
    between = Body(matmul(1, 1, 16, 4, 1, 4, 1, 16, 8, 64), WIDE, 0)
    assert straight.steps_per_accumulator_load[0] == 512
    assert between.steps_per_accumulator_load[0] == 64


def test_code_without_any_loop_is_made_worse_once_it_is_long() -> None:
    depth = matrix_product_nest((64, 64), (128,))
    loops = Loops(depth, np.array([[1, 8, 1, 8, 1, 4, 1, 16, 4, 32]], dtype=np.int32))
    long, short = Body(loops, WIDE, 1024), Body(loops, WIDE, 256)
    assert (long.is_fully_unrolled[0], short.is_fully_unrolled[0]) == (True, False)
    assert computing_us(loops, WIDE, 1024)[0] > 2 * computing_us(loops, WIDE, 256)[0]


def test_what_fits_into_the_last_cache_is_there_already() -> None:
    small, large = (
        Loops(
            matrix_product_nest((size, size), (16,)),
            np.array([[1, size, 1, 1, 1, size // 16, 1, 16, 1, 16]], np.int32),
        )
        for size in (256, 4096)
    )
    assert moving_us(small, WIDE)[-1][0] == 0
    assert moving_us(large, WIDE)[-1][0] > 0


def test_a_pass_of_its_own_across_the_rows_of_a_result_is_dear() -> None:
    loops = matmul(1, 16, 1, 4, 1, 4, 1, 16, 8, 64)
    fused, along, across = (
        result_us(loops, WIDE, home, over)[0] for home, over in ((2, False), (None, False), (None, True))
    )
    assert fused < along < across


def test_a_transposition_reads_across_what_was_made() -> None:
    made = Access((64, 64), (((0, 1),), ((1, 1),)), made=True)
    turned = Access((64, 64), (((1, 1),), ((0, 1),)), made=True)
    copy, transposed = (
        Nest((Axis(64), Axis(64)), (read,), Access((64, 64), (((0, 1),), ((1, 1),))))
        for read in (made, turned)
    )
    assert not is_read_across_rows(MATMUL, [MATMUL, copy])
    assert is_read_across_rows(MATMUL, [MATMUL, transposed])


factors = st.sampled_from([1, 2, 4, 8])


@settings(max_examples=60, deadline=None)
@given(rows=factors, again=factors, depth=factors, unroll=st.sampled_from([0, 16, 64, 512]))
def test_writing_out_never_needs_more_loads(rows: int, again: int, depth: int, unroll: int) -> None:
    loops = matmul(1, 64 // rows // again, again, rows, 1, 4, 1, 16, 512 // depth, depth)
    body = Body(loops, WIDE, unroll)
    assert body.load_cost[0] <= (rows * NUMBER + VECTOR) / rows + 1e-9
    assert body.accumulator_count[0] >= rows
    assert body.operation_count[0] <= max(unroll, UNROLLED)


def test_what_an_instruction_does_at_once_is_one_step_of_larger_elements():
    """A product of bytes, four of them for each of sixteen numbers at once."""
    axes = (Axis(7), Axis(8), Axis(16), Axis(32, reduced=True), Axis(4, reduced=True))
    data = Access((7, 128), (((0, 1),), ((3, 4), (4, 1))), 1.0)
    weights = Access((8, 32, 16, 4), (((1, 1),), ((3, 1),), ((2, 1),), ((4, 1),)), 1.0)
    nest = Nest(axes, (data, weights), Access((7, 128), (((0, 1),), ((1, 16), (2, 1)))))
    found = fold_nest(nest, (7, 8, 1, 32, 1))
    assert found is not None
    assert found.extents == (7, 8, 1, 32, 1)
    assert [access.element_bytes for access in found.accesses] == [4, 64, 64]
    assert [access.shape for access in found.accesses] == [(7, 32), (8, 32, 1, 1), (7, 8)]
    assert found.write.indices[1] == ((1, 1), (2, 1))


def test_other_loops_are_of_another_nest():
    assert fold_nest(matrix_product_nest((8, 32), (16,)), (8, 32, 16)) == matrix_product_nest((8, 32), (16,))
    assert fold_nest(matrix_product_nest((8, 32), (16,)), (8, 32, 5)) is None
    assert fold_nest(matrix_product_nest((8, 32), (16,)), (8, 32)) is None
