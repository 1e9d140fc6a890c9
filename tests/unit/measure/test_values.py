"""Random arguments: in range, alike everywhere, never denormal."""

import numpy as np
import pytest

from mallorn.workers.device.random_and_saved_arrays import random_values


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8"])
def test_integers_stay_below_the_end_of_their_range(dtype: str) -> None:
    values = random_values((1000,), dtype, 3, 7, seed=0)
    assert values.dtype == dtype
    assert set(values.tolist()) == {3, 4, 5, 6}


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_floats_are_of_the_range_and_normal(dtype: str) -> None:
    values = random_values((1000,), dtype, 0.1, 1.0, seed=0)
    assert values.dtype == dtype
    assert np.finfo(dtype).smallest_normal < values.min()
    assert values.max() <= 1.0


def test_an_empty_integer_range_is_its_first_value() -> None:
    assert set(random_values((10,), "int32", 5, 5, seed=0).tolist()) == {5}


def test_booleans_are_both() -> None:
    assert set(random_values((100,), "bool", 0, 1, seed=0).tolist()) == {False, True}


def test_the_seed_decides() -> None:
    first, again, other = (random_values((8,), "float32", 0, 1, seed) for seed in (1, 1, 2))
    assert first.tolist() == again.tolist()
    assert first.tolist() != other.tolist()
