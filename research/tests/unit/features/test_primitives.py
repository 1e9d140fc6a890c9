"""Primitives: a line a step, its numbers where decisions put them."""

import numpy as np

from mallorn.costmodels.views import PRIMITIVES
from mallorn.searchers.space import Matrix, Sketch
from mallorn_research.features.schedule_primitives_view import (
    BLOCK,
    DECIDED,
    FIRST_NUMBER,
    KINDS,
    OTHER,
    Primitives,
)
from tests.unit.features.sketches import PRODUCT_WORK, factored, product


def table(sketch: Sketch, *decisions: int, work: tuple[float, ...] = PRODUCT_WORK) -> Matrix:
    rows = np.array([decisions], dtype=np.int32)
    lines = PRIMITIVES.tables(Primitives().extract_rows(sketch, work, rows))[0]
    return lines[lines[:, 0] == 1]


def kinds(lines: Matrix) -> list[int]:
    return [int(line[1 : OTHER + 1].argmax()) + 1 for line in lines]


def test_steps_that_only_look_something_up_have_no_line() -> None:
    lines = table(product("l20"), 4, 2, 2, 2, 8, 2, 2, 2, 12, 4, 1)
    split, reorder, move = KINDS["Split"], KINDS["Reorder"], KINDS["ReverseComputeAt"]
    limits = [KINDS[f"meta_schedule.{name}"] for name in ("parallel", "vectorize", "unroll_explicit")]
    assert kinds(lines[1:]) == [KINDS["Annotate"], split, split, split, reorder, move, *limits]


def test_the_first_line_is_the_work() -> None:
    first = table(product("l20"), 4, 2, 2, 2, 8, 2, 2, 2, 12, 4, 1)[0]
    np.testing.assert_allclose(first[FIRST_NUMBER : FIRST_NUMBER + 4], PRODUCT_WORK)
    assert not first[1:FIRST_NUMBER].any()


def test_a_split_has_its_axis_and_its_factors_on_a_log_scale() -> None:
    second = table(product("l20"), 4, 2, 2, 2, 8, 2, 4, 1, 12, 4, 1)[3]
    axis, level, *factors = second[FIRST_NUMBER : FIRST_NUMBER + 6].tolist()
    assert (axis, level) == (np.float32(np.log2(1 + 2)), 0)
    np.testing.assert_allclose(factors, np.log2([9, 3, 5, 2]), rtol=1e-6)
    assert second[DECIDED] == 1


def test_unrolling_is_what_the_choice_stands_for() -> None:
    for choice, steps in enumerate((0, 16, 64, 512)):
        last = table(product("l20"), 4, 2, 2, 2, 8, 2, 2, 2, 12, 4, choice)[-1]
        assert last[FIRST_NUMBER] == np.float32(np.log2(1 + steps))


def test_a_block_that_is_moved_is_named_by_its_number() -> None:
    lines = table(factored("l7"), 4, 32, 0, 0, -1, work=(1.0,))
    moves = lines[lines[:, KINDS["ComputeAt"]] == 1]
    assert moves[0, BLOCK] != moves[1, BLOCK]
    assert moves[:, FIRST_NUMBER].tolist() == [0.0, -1.0]
    assert moves[:, DECIDED].all()


def test_a_step_of_no_known_kind_is_a_line_of_its_own_kind() -> None:
    odd = Sketch("odd", '[["GetSBlock",[],["a","main"],["b0"]],["SetScope",["b0"],[0,"shared"],[]]]', ())
    assert kinds(table(odd)[1:]) == [OTHER]


def test_what_is_beyond_the_table_is_cut() -> None:
    step = '["ComputeInline",["b0"],[],[]]'
    long = Sketch("long", f'[["GetSBlock",[],["a","main"],["b0"]],{",".join([step] * 100)}]', ())
    assert len(table(long)) == PRIMITIVES.shape[0]
