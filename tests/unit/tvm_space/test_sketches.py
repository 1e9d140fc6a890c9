"""Sketches: stable names, and every free choice described as searchers need it."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tvm.s_tir.schedule import ScheduleError

from mallorn.core.errors import Unschedulable
from mallorn.searchers.space import Choice, Sketch
from mallorn.workers.tvm.space import sketches
from mallorn.workers.tvm.space.sketches import choices_of, design_space, sketch_key
from tests.unit.tvm_space.programs import TARGET, conv2d, cubes, masked_matmul, matmul, negate, softmax

ROOT = Path(__file__).resolve().parents[3]


def of_kind(sketch: Sketch, kind: str) -> list[Choice]:
    return [choice for choice in sketch.choices if choice.kind == kind]


def test_a_matmul_is_tiled_along_its_three_axes() -> None:
    for sketch in design_space(matmul(), TARGET):
        tiles = of_kind(sketch, "tile")
        assert [(tile.width, tile.extent) for tile in tiles] == [(4, 32), (4, 64), (2, 48)]
        assert all(tile.limit == 64 for tile in tiles)


def test_a_mask_that_is_added_to_products_moves_into_the_sum() -> None:
    """TVM's rules keep a choice, and then cannot move what reads it to the tiles."""
    sketches = design_space(masked_matmul(), TARGET)
    assert [len(of_kind(sketch, "tile")) for sketch in sketches] == [4] * len(sketches)
    assert any('"ReverseComputeAt"' in sketch.trace for sketch in sketches)


def test_stock_rules_suggest_nothing() -> None:
    """What TVM draws while it makes a sketch is no advice."""
    for program in (matmul(), softmax()):
        choices = [choice for sketch in design_space(program, TARGET) for choice in sketch.choices]
        assert all(choice.suggested == () for choice in choices)


def test_an_unrolling_choice_names_its_steps_and_their_odds() -> None:
    (unroll,) = of_kind(design_space(matmul(), TARGET)[0], "categorical")
    assert unroll.labels == (0, 16, 64, 512)
    assert unroll.values == (0, 1, 2, 3)
    assert sum(unroll.weights) == 1


def test_compute_locations_list_where_a_block_may_go() -> None:
    locations = [
        choice for sketch in design_space(softmax(), TARGET) for choice in of_kind(sketch, "location")
    ]
    assert locations
    for location in locations:
        assert location.values == tuple(sorted(set(location.values)))
        assert min(location.values) >= -2
        assert len(location.weights) == len(location.values)
    assert max(len(location.values) for location in locations) > 2


@pytest.mark.parametrize("program", [matmul, conv2d, softmax])
def test_sketches_share_only_samples_that_each_would_draw_alone(
    program: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = design_space(program(), TARGET)
    monkeypatch.setattr(sketches, "choices_of", lambda *given: choices_of(*given[:3], {}))
    design_space.cache_clear()
    assert design_space(program(), TARGET) == shared


def test_operators_that_multiply_what_is_inlined_stay_apart() -> None:
    """Each cube loads its input three times: 3**24 loads if all were inlined."""
    (sketch,) = design_space(cubes(24), TARGET)
    assert "ComputeInline" not in sketch.trace
    (short,) = design_space(cubes(4), TARGET)
    assert "ComputeInline" in short.trace


def test_a_program_without_choices_is_one_candidate() -> None:
    (sketch,) = design_space(negate(), TARGET)
    assert sketch.choices == ()


def test_what_tvm_cannot_schedule_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ScheduleError("no block is named padded")

    monkeypatch.setattr("mallorn.workers.tvm.space.sketches.design_contexts", refuse)
    design_space.cache_clear()
    with pytest.raises(
        Unschedulable, match="TVM finds no schedule for the program: no block is named padded"
    ):
        design_space(matmul(), TARGET)


def test_sketches_differ_and_are_named_by_their_trace() -> None:
    sketches = design_space(softmax(), TARGET)
    assert len({sketch.key for sketch in sketches}) == len(sketches) > 1
    assert all(sketch.key == sketch_key(sketch.trace) for sketch in sketches)


def test_another_process_finds_the_same_sketches() -> None:
    script = """
from tests.unit.tvm_space.programs import TARGET, softmax
from mallorn.workers.tvm.space.sketches import design_space
print(design_space(softmax(), TARGET))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == str(design_space(softmax(), TARGET))
