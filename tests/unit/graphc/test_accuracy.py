"""When two answers count as the same."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mallorn.graphc.export.output_errors import relative_error, rounded_outputs_error
from mallorn.workers.interfaces.output_comparison import Reference
from mallorn.workers.measure.compare_outputs import (
    compare_models,
    compare_outputs,
    find_constant_outputs,
    tolerance,
)

REF = np.array([1.0, -4.0, 2.0], "float32")


def saved(path: Path, **arrays: Any) -> str:
    np.savez(path, **arrays)
    return str(path)


def test_the_error_is_relative_to_the_largest_value() -> None:
    assert relative_error(REF + np.float32(0.5), REF) == pytest.approx(0.125)


@pytest.mark.parametrize(
    "ours", [REF[:2], REF * np.nan, np.array([np.inf, -4, 2])], ids=["shape", "nan", "infinite"]
)
def test_another_shape_or_lost_finiteness_is_infinitely_wrong(ours: Any) -> None:
    assert relative_error(ours, REF) == float("inf")


def test_equal_infinities_are_right_and_opposite_ones_wrong() -> None:
    reference = np.array([np.inf, 1.0])
    assert relative_error(reference, reference) == 0.0
    assert relative_error(np.array([-np.inf, 1.0]), reference) == float("inf")


def test_zeros_tolerate_only_zeros() -> None:
    assert relative_error(np.zeros(3), np.zeros(3)) == 0.0
    assert relative_error(np.full(3, 1e-3), np.zeros(3)) > 1


def test_tolerance_grows_with_the_sum_and_shrinks_with_precision() -> None:
    assert tolerance("float32", 4096) > tolerance("float32", 1) > tolerance("float64", 4096) > 0
    assert tolerance("float16", 1) > tolerance("float32", 4096)
    assert tolerance("int64", 4096) == 0.0


def test_a_rounded_sum_may_be_one_step_off() -> None:
    assert 2**-7 < tolerance("bfloat16", 4096) < 2**-6


@pytest.mark.parametrize(("shift", "ok"), [(1e-7, True), (1e-2, False)])
def test_only_outputs_are_compared(tmp_path: Path, shift: float, ok: bool) -> None:
    expected = saved(tmp_path / "e.npz", arg_0=REF, arg_1=REF)
    ours = saved(tmp_path / "o.npz", arg_0=REF * 9, arg_1=REF + np.float32(shift))
    assert compare_outputs(ours, expected, Reference([1], reduction_len=16)).ok is ok


def test_models_with_other_outputs_never_agree(tmp_path: Path) -> None:
    one, two = saved(tmp_path / "1.npz", output_0=REF), saved(tmp_path / "2.npz", output_0=REF, output_1=REF)
    assert compare_models(one, two) == float("inf")
    assert compare_models(two, two) == 0.0


STEPS = np.tile(np.arange(200, dtype="uint8"), 10)


def stepped(places: int, by: int) -> Any:
    ours = STEPS.astype("int64")
    ours[:places] += by
    return ours.astype("uint8")


@pytest.mark.parametrize(
    ("places", "by", "ok"),
    [(0, 0, True), (20, 1, True), (40, 1, False), (1, 2, False)],
    ids=["the same", "a few of a step", "many of a step", "one of two steps"],
)
def test_a_few_numbers_may_be_rounded_the_other_way(tmp_path: Path, places: int, by: int, ok: bool) -> None:
    expected, ours = (
        saved(tmp_path / "e.npz", arg_0=STEPS),
        saved(tmp_path / "o.npz", arg_0=stepped(places, by)),
    )
    assert compare_outputs(ours, expected, Reference([0], reduction_len=16, rounds=True)).ok is ok
    assert compare_outputs(ours, expected, Reference([0], reduction_len=16)).ok is (places == 0)


def test_lost_finiteness_is_wrong_where_numbers_are_rounded_too() -> None:
    assert rounded_outputs_error(REF * np.nan, REF) == float("inf")


@pytest.mark.parametrize(
    ("by", "ok"), [(0.007, True), (0.1, False)], ids=["a step", "as much as a fault may be off"]
)
def test_a_few_real_numbers_may_be_a_step_off_and_no_more(by: float, ok: bool) -> None:
    reals = np.linspace(-1.0, 1.0, 2000)
    ours = reals.copy()
    ours[:10] += by
    assert (rounded_outputs_error(ours, reals) < 1e-6) is ok


def test_a_far_value_makes_no_room_among_the_near_ones() -> None:
    coarse = np.tile(np.array([0, 1, 2, 3, 100], "float32"), 500)
    ours = coarse.copy()
    ours[0] += 9
    assert rounded_outputs_error(ours, coarse) == pytest.approx(0.09)


def test_a_number_of_an_answer_in_steps_may_fall_to_the_next_value_alone() -> None:
    coarse = np.tile(np.arange(4, dtype="float32"), 500)
    for by, ok in ((1, True), (2, False)):
        ours = coarse.copy()
        ours[0] += by
        assert (rounded_outputs_error(ours, coarse) == 0.0) is ok


def test_an_output_of_one_number_in_all_draws_is_constant(tmp_path: Path) -> None:
    zeros, ones, ramp = np.zeros(3), np.ones(3), np.arange(3.0)
    draws = [zeros, ramp, zeros, zeros, ramp, ones]  # three outputs, two draws
    np.savez(
        path := tmp_path / "outputs.npz", **{f"output_{index}": each for index, each in enumerate(draws)}
    )
    assert find_constant_outputs(str(path), 2) == [0]
    np.savez(path, output_0=np.full(3, np.nan), output_1=np.float32(2))
    assert find_constant_outputs(str(path), 1) == [0, 1]
