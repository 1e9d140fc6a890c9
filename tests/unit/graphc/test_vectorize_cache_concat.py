"""Caches that grow are copied row by row with what comes behind them; other joins stay TVM's."""

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

from mallorn.graphc.attention.fuse_cached_attention import VectorizeCacheConcat
from tests.unit.graphc import networks
from tests.unit.graphc.networks import random, run

HEADS, NUMBERS, ROWS, SAMPLE = 2, 8, 3, 11


def joined(axis: int = 2, second: str = "rows") -> tuple[Any, Any]:
    """A cache of any length with rows or another cache behind it, and the length."""
    length = tirx.Var("n", "int64")
    sizes = (1, HEADS, length, NUMBERS), (1, HEADS, ROWS if second == "rows" else length, NUMBERS)
    return networks.network(lambda _, *parts: relax.op.concat(parts, axis=axis), *sizes), length


@pytest.mark.parametrize("length", [1, 5, 64])
def test_rows_come_behind_a_cache_of_any_length(length: int) -> None:
    mod, size = joined()
    after, report = VectorizeCacheConcat(size, SAMPLE).apply(mod)
    assert report.fired == 1
    cache, rows = random(1, HEADS, length, NUMBERS), random(1, HEADS, ROWS, NUMBERS)
    np.testing.assert_array_equal(run(after, cache, rows), np.concatenate([cache, rows], axis=2))


@pytest.mark.parametrize(
    ("axis", "second", "reason"),
    [
        (3, "cache", "the concat is not of two 4-D tensors along the third axis"),
        (2, "cache", "only the first part may grow, by one row at a time"),
    ],
    ids=["numbers of heads", "two that grow"],
)
def test_other_joins_stay(axis: int, second: str, reason: str) -> None:
    mod, size = joined(axis, second)
    _, report = VectorizeCacheConcat(size, SAMPLE).apply(mod)
    assert (report.fired, dict(report.left)) == (0, {reason: 1})


def test_a_second_time_changes_nothing() -> None:
    mod, size = joined()
    once = VectorizeCacheConcat(size, SAMPLE)(mod)
    twice, report = VectorizeCacheConcat(size, SAMPLE).apply(once)
    assert report.fired == 0
    tvm.ir.assert_structural_equal(twice, once)
