"""Rows are looked up by indices from either end, and written where they are joined."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from mallorn.graphc.layout.join_rows import FuseLookups
from tests.unit.graphc.networks import assert_same, difference, network, random, run, weights
from tests.unit.graphc.pass_conformance import PassConformance, graph_text

ROWS, WIDTH = 20, 24
Emit = Callable[[Any], Any]


def number(value: int, kind: str = "int64") -> Any:
    return relax.const(value, kind)


def from_either_end(emit: Emit, indices: Any, rows: int = ROWS) -> Any:
    """As the importer writes it."""
    kind = str(indices.ty.dtype)
    below, added = relax.op.less(indices, number(0, kind)), relax.op.add(indices, number(rows, kind))
    return emit(relax.op.where(emit(below), emit(added), indices))


def looked_up(emit: Emit, indices: Any, table: Any = None) -> Any:
    table = weights(ROWS, WIDTH) if table is None else table
    return emit(relax.op.take(table, from_either_end(emit, indices), axis=0, mode="fast"))


def column(emit: Emit, ids: Any, which: int) -> Any:
    return emit(relax.op.take(ids, number(which, "int32"), axis=1, mode="fast"))


def of_indices(body: Any, *shape: int, kind: str = "int64") -> Any:
    return network(body, shape, dtype=kind)


def some(*shape: int, kind: str = "int64") -> Any:
    return np.random.default_rng(1).integers(-ROWS, ROWS, shape, kind)


class TestFuseLookups(PassConformance):
    PASS = FuseLookups
    BEFORE = """
lv[3, 5] = less(x0[3, 5], constant[])
lv1[3, 5] = add(x0[3, 5], constant[])
lv2[3, 5] = where(lv[3, 5], lv1[3, 5], x0[3, 5])
lv3[3, 5, 24] = take(constant[20, 24], lv2[3, 5])
gv[3, 5, 24] = lv3[3, 5, 24]
"""
    AFTER = """
lv[15, 1] = reshape(x0[3, 5], [15, 1])
lv1[15, 24] = lookup(constant[20, 24], lv[15, 1])
lv3[3, 5, 24] = reshape(lv1[15, 24], [3, 5, 24])
gv[3, 5, 24] = lv3[3, 5, 24]
"""

    def fires(self) -> Any:
        return of_indices(looked_up, 3, 5)

    def leaves(self) -> Mapping[str, Any]:
        return {
            "the look-up does not handle negative indices": of_indices(
                lambda _, i: relax.op.take(weights(ROWS, WIDTH), i, axis=0, mode="fast"), 5
            ),
            "the operator does not take rows of a table": of_indices(
                lambda emit, i: relax.op.take(
                    weights(4, ROWS), from_either_end(emit, i), axis=1, mode="fast"
                ),
                5,
            ),
            "the concat joins fewer than two look-ups": network(
                lambda _, x: relax.op.concat([x, x], 1), (2, 3)
            ),
        }

    def test_it_keeps_the_numbers(self) -> None:
        self.keeps_numbers(self.apply(self.fires())[0])

    def test_it_fires_in_a_whole_recipe_which_keeps_the_numbers(self) -> None:
        after, reports = self._recipe(self.fires())
        assert sum(report.fired for report in reports if report.name == self.PASS.name) == 1
        self.keeps_numbers(after)

    def keeps_numbers(self, after: Any) -> None:
        """Random integers would be no rows of the table."""
        indices = some(3, 5)
        assert np.array_equal(run(after, indices), random(ROWS, WIDTH)[indices])


@pytest.mark.parametrize("kind", ["int32", "int64"])
@pytest.mark.parametrize("many", [7, 1000])
def test_each_index_finds_its_row(kind: str, many: int) -> None:
    after = FuseLookups(8)(of_indices(looked_up, many, kind=kind))
    indices = some(many, kind=kind)
    assert "lookup" in graph_text(after)
    assert np.array_equal(run(after, indices), random(ROWS, WIDTH)[indices])


def test_tables_and_indices_are_read_by_several_parts() -> None:
    table = weights(ROWS, WIDTH)

    def body(emit: Emit, ids: Any) -> Any:
        parts = [looked_up(emit, column(emit, ids, at), table) for at in (1, 0, 1)]
        return relax.op.concat([*parts, looked_up(emit, column(emit, ids, 0))], 1)

    after, ids = FuseLookups(8)(of_indices(body, 4, 2)), some(4, 2)
    rows = random(ROWS, WIDTH)[ids]
    expected = np.concatenate([rows[:, at] for at in (1, 0, 1, 0)], 1)
    assert (graph_text(after).count("lookup"), graph_text(after).count("take")) == (1, 0)
    assert difference(run(after, ids), expected) == 0


@pytest.mark.parametrize("axis", [1, 2, -1])
def test_rows_of_several_tables_are_written_beside_each_other(axis: int) -> None:
    tables = [random(ROWS, WIDTH), random(ROWS, WIDTH) + 1]

    def body(emit: Emit, ids: Any) -> Any:
        rows = [looked_up(emit, column(emit, ids, at), relax.const(table)) for at, table in enumerate(tables)]
        other = emit(relax.op.astype(emit(relax.op.reshape(ids, (6, 1, 24))), "float32"))
        return relax.op.concat([*(emit(relax.op.reshape(each, (6, 1, WIDTH))) for each in rows), other], axis)

    after = FuseLookups(8)(of_indices(body, 6, 24))
    ids = some(6, 24)
    parts = [table[ids[:, at]].reshape(6, 1, WIDTH) for at, table in enumerate(tables)]
    assert (graph_text(after).count("lookup"), graph_text(after).count("concat")) == (1, 0)
    assert difference(run(after, ids), np.concatenate([*parts, ids.reshape(6, 1, 24)], axis)) == 0


def test_rows_that_others_read_are_looked_up_for_them() -> None:
    def body(emit: Emit, ids: Any) -> Any:
        shared = looked_up(emit, column(emit, ids, 0))
        alone = [looked_up(emit, column(emit, ids, at)) for at in (1, 2)]
        joined = emit(relax.op.concat([shared, *alone], 1))
        return relax.op.add(joined, emit(relax.op.concat([shared, shared, shared], 1)))

    mod = of_indices(body, 4, 3)
    after = assert_same(FuseLookups(8)(mod), mod, some(4, 3), tolerance=0)
    assert graph_text(after).count("lookup") == 2


def test_what_counts_from_another_end_is_left() -> None:
    def body(emit: Emit, ids: Any) -> Any:
        return relax.op.take(weights(ROWS, WIDTH), from_either_end(emit, ids, 7), axis=0, mode="fast")

    with tvm.target.Target("llvm"):
        assert FuseLookups().apply(of_indices(body, 5))[1].fired == 0
