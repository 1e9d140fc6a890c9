"""Sorts as loops give the order of numpy's stable sort, along any axis and of any type."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tvm import relax

from mallorn.graphc.elementwise.sort_by_digits import SortByDigits
from tests.unit.graphc.networks import network, run
from tests.unit.graphc.pass_conformance import PassConformance


def first(k: int, axis: int, largest: bool, dtype: str, *shape: int) -> Any:
    return network(lambda _, x: relax.op.topk(x, k, axis, "both", largest, "int64"), shape, dtype=dtype)


def with_ties(dtype: str, *shape: int) -> NDArray[Any]:
    """Few distinct numbers, of both signs and with both zeros where the type has them."""
    rng = np.random.default_rng(0)
    numbers = rng.integers(0 if dtype.startswith("u") else -40, 40, shape).astype(dtype)
    if dtype.startswith("float"):
        numbers = np.where(rng.random(shape) < 0.5, numbers, rng.standard_normal(shape)).astype(dtype)
        numbers = np.where((numbers == 0) & (rng.random(shape) < 0.5), -numbers, numbers).astype(dtype)
    return numbers


def order_of(x: NDArray[Any], axis: int, largest: bool) -> NDArray[Any]:
    wide = x.astype("float64")
    return np.argsort(-wide if largest else wide, axis=axis, kind="stable")


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "uint8", "int32", "uint32", "int64"])
@pytest.mark.parametrize(
    ("k", "axis", "shape"),
    [
        pytest.param(7, 1, (3, 30, 5), id="few are kept"),
        pytest.param(300, 1, (2, 300), id="all are kept"),
        pytest.param(300, 1, (2, 20_000), id="a long axis"),
    ],
)
def test_equal_numbers_keep_their_order(
    k: int, axis: int, shape: tuple[int, ...], dtype: str, largest: bool
) -> None:
    x = with_ties(dtype, *shape)
    values, places = run(SortByDigits(8)(first(k, axis, largest, dtype, *shape)), x)
    expected = np.take(order_of(x, axis, largest), range(k), axis)
    np.testing.assert_array_equal(np.asarray(places), expected)
    np.testing.assert_array_equal(np.asarray(values), np.take_along_axis(x, expected, axis))


@pytest.mark.parametrize("descending", [True, False])
def test_sort_and_argsort_keep_all(descending: bool) -> None:
    x = with_ties("float32", 4, 50, 3)
    places = order_of(x, 1, descending)
    mod = network(lambda _, each: relax.op.sort(each, 1, descending), x.shape)
    np.testing.assert_array_equal(run(SortByDigits(8)(mod), x), np.take_along_axis(x, places, 1))
    mod = network(lambda _, each: relax.op.argsort(each, 1, descending, "int64"), x.shape)
    np.testing.assert_array_equal(run(SortByDigits(8)(mod), x), places)


class TestSortByDigits(PassConformance):
    PASS = SortByDigits
    BEFORE = "gv[3, 40] = sort(x0[3, 40])"
    AFTER = """
lv[3, 40, 1] = reshape(x0[3, 40], [3, 40, 1])
lv1 = sorted(lv[3, 40, 1])
lv2[3, 40, 1] = lv1.0
gv[3, 40] = reshape(lv2[3, 40, 1], [3, 40])
"""

    def fires(self) -> Any:
        return network(lambda _, x: relax.op.sort(x, -1), (3, 40))

    def leaves(self) -> Mapping[str, Any]:
        return {
            "the pass does not sort float16": network(lambda _, x: relax.op.sort(x), (6, 10), dtype="float16")
        }
