"""auto_scheduler's steps become a sketch and decisions that the view `primitives` reads."""

import json
from typing import Any

import numpy as np
import pytest

from mallorn.core.values.candidate import ChoiceKind
from mallorn.costmodels.views import PRIMITIVES
from mallorn.searchers.space import Matrix
from mallorn_research.features.resolved_trace import steps_of
from mallorn_research.features.schedule_primitives_view import FIRST_NUMBER, KINDS, OTHER, Primitives
from mallorn_research.tuner_logs.auto_scheduler import ReadSteps, Tile, read_steps
from research.tests.fixtures.tenset_log import product_steps

ROWS, COLUMNS = (1, 64, 8), (2, 32, 1)


def read(*steps: Any) -> ReadSteps:
    return read_steps(json.dumps(steps))


def product(rows: tuple[int, ...] = ROWS, inner: int = 16, unroll: int = 64) -> ReadSteps:
    return read(*product_steps(rows, COLUMNS, inner, unroll))


def lines_of(found: ReadSteps) -> Matrix:
    rows = np.array([found.decisions], dtype=np.int32)
    table = PRIMITIVES.tables(Primitives().extract_rows(found.sketch, (17.0,), rows))[0]
    return table[table[:, 0] == 1]


def test_factors_are_decisions_with_the_outermost_that_a_record_leaves_out() -> None:
    found = product()
    assert found.decisions == (1, 1, 64, 8, 1, 2, 32, 1, 64, 16, 2)
    kinds = [choice.kind for choice in found.sketch.choices]
    assert kinds == [ChoiceKind.TILE] * 3 + [ChoiceKind.CATEGORICAL]
    assert [choice.extent for choice in found.sketch.choices[:3]] == [512, 64, 1024]
    assert found.sketch.decision_count == len(found.decisions)


def test_candidates_that_differ_by_their_numbers_share_a_sketch() -> None:
    one, other = product(), product(rows=(4, 4, 4), inner=4, unroll=512)
    assert one.sketch.key == other.sketch.key
    assert one.decisions != other.decisions
    assert read(["CI", 5]).sketch.key != one.sketch.key


def test_loops_that_were_cut_are_told_with_their_stage() -> None:
    first, *others = product().tiles
    assert first == Tile(first.block, 512, 4)
    assert [(tile.extent, tile.levels) for tile in others] == [(64, 4), (1024, 2)]
    assert {tile.block for tile in others} == {first.block}


def test_steps_are_read_in_order_as_ours_are() -> None:
    lines = lines_of(product())[1:]
    names = ("CacheWrite", *["Split"] * 3, "Reorder", *["Split"] * 2, "Reorder", "ComputeAt", "Fuse")
    limits = [KINDS[f"meta_schedule.{name}"] for name in ("parallel", "unroll_explicit", *["vectorize"] * 2)]
    assert [int(line[1 : OTHER + 1].argmax()) + 1 for line in lines] == [*map(KINDS.get, names), *limits]


def test_a_cut_that_follows_another_has_its_factors() -> None:
    first, following = lines_of(product())[2], lines_of(product())[6]
    axis, *factors = following[FIRST_NUMBER : FIRST_NUMBER + 4].tolist()
    assert axis != first[FIRST_NUMBER], "it is another stage's loop"
    assert factors[1:] == first[FIRST_NUMBER + 2 : FIRST_NUMBER + 4].tolist()


def test_a_cached_stage_takes_the_number_of_the_one_that_it_is_cached_for() -> None:
    steps = steps_of(read(["CI", 2], ["CHW", 2, "local"], ["CI", 3], ["CI", 2]).sketch)
    first, _, whole, cache = [step for step in steps if step.kind != "GetSBlock"]
    assert whole.names == first.names
    assert cache.names != first.names
    [_, made, again] = steps_of(read(["CHR", 2, "shared", [3]], ["CI", 3]).sketch)
    assert list(made.outputs) == again.names


def test_what_comes_later_changes_no_step_before() -> None:
    before = [["SP", 1, 0, 64, [8], 1], ["RE", 1, [1, 0]]]
    after = [["FU", 1, [0, 1]], ["AN", 1, 0, 3]]
    short, long = (json.loads(read(*steps).sketch.trace) for steps in (before, before + after))
    assert long[: len(short)] == short


def test_a_loop_that_does_not_divide_is_cut_into_more() -> None:
    assert read(["SP", 3, 0, 1000, [3], 1]).decisions == (334, 3)


BROKEN = {
    "a step that is none": ["XX", 1],
    "a pragma of another kind": ["PR", 1, 0, "parallel_barrier"],
    "steps that nobody unrolls by": ["PR", 1, 0, "auto_unroll_max_step$7"],
    "a factor of nothing": ["SP", 1, 0, 64, [0], 1],
    "a factor below it": ["SP", 1, 0, 64, [-2], 1],
    "a factor that is no number": ["SP", 1, 0, 64, ["2"], 1],
    "a loop that no program has": ["SP", 1, 10**9, 64, [2], 1],
    "too few words": ["SP", 1],
    "an annotation without a meaning": ["AN", 1, 0, 99],
    "a step before the first": ["FSP", 1, 0, 7, 2],
    "no step": 5,
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_step_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read(["CI", 4], BROKEN[name])
