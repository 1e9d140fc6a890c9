"""Element-wise functions under the rule of ours: the same numbers, and vectors that end where rows do."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax

from mallorn.graphc.core.graph_rewriting import WIDEST
from mallorn.graphc.tasks.mark_tasks import LINE, MarkElementwiseRows, choose_vector_width
from mallorn.workers.tvm.records.tuning_database import apply_trace
from mallorn.workers.tvm.space.rebuild_schedule import full_trace
from mallorn.workers.tvm.space.sketches import design_space
from tests.unit.graphc import networks
from tests.unit.graphc.networks import call, network, random, scheduled, weights

TARGET = '{"kind":"llvm","mcpu":"znver4","num-cores":2}'
Compute = Callable[[Any, Any], Any]


def program(compute: Compute, *shape: int) -> Any:
    """The marked tensor function of what is computed, as a task has it."""
    return networks.program(MarkElementwiseRows(16)(networks.fused(network(compute, shape))))


def chain(emit: Any, x: Any) -> Any:
    return relax.op.nn.relu(emit(relax.op.add(x, x)))


def scaled(emit: Any, x: Any) -> Any:
    """By row, and by place in a row."""
    rows = emit(relax.op.multiply(x, weights(int(x.ty.shape[0]), 1, 1)))
    return relax.op.add(rows, weights(int(x.ty.shape[2])))


def answer(mod: Any) -> Any:
    *given, out = ([*map(int, value.shape)] for value in mod["main"].params)
    return call(
        mod, *(random(*size) if size else np.float32(1) for size in given), np.full(out, 7, "float32")
    )


@pytest.mark.parametrize("compute", [chain, scaled], ids=["a chain", "factors of rows and places"])
@pytest.mark.parametrize("shape", [(3, 5, 56), (2, 3, 24), (2, 2, 144)], ids=str)
def test_the_numbers_are_those_of_the_plain_program(compute: Compute, shape: tuple[int, ...]) -> None:
    mod = program(compute, *shape)
    tir = tvm.ir.save_json(mod)
    (sketch,) = design_space(tir, TARGET)
    trace = full_trace(tir, TARGET, sketch.trace, [])
    assert trace is not None
    np.testing.assert_allclose(answer(apply_trace(mod, trace).mod), answer(mod), rtol=1e-6)


@pytest.mark.parametrize(("row", "part"), [(56, 56), (96, 48), (1000, 40)])
def test_a_vector_ends_where_a_row_does(row: int, part: int) -> None:
    text = scheduled(program(chain, 4, 3, row), TARGET).script()
    assert f"T.vectorized(T.int64({part})" in text
    assert "T.parallel(" in text


@pytest.mark.parametrize(
    ("compute", "shape"),
    [
        (chain, (3, 5, 128)),
        (chain, (3, 5, 49)),
        (lambda _, x: relax.op.permute_dims(x, [0, 2, 1]), (3, 56, 56)),
        (lambda _, x: relax.op.sum(x, -1), (3, 5, 56)),
    ],
    ids=["whole vectors of TVM's", "no half vectors", "a transposition", "a sum"],
)
def test_others_keep_tvms_rules(compute: Compute, shape: tuple[int, ...]) -> None:
    assert LINE not in program(compute, *shape).script()


@given(st.integers(1, 2000), st.sampled_from([4, 8, 16]))
def test_parts_of_a_row_are_equal_and_fill_half_vectors(row: int, lanes: int) -> None:
    part = choose_vector_width(row, lanes)
    assert part <= WIDEST
    assert part == 0 or (row % part == 0 and part % (lanes // 2) == 0)
    assert part or row % (lanes // 2)
