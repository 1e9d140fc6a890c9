"""Weights that are laid out anew are constants again: the same numbers, no library compiled for them."""

from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import tvm
from tvm import relax, te

from mallorn.graphc.core.graph_pass import Leave
from mallorn.graphc.fold.constants import MOST_NUMBERS, FoldConstantCopies, run_copies
from tests.unit.graphc.networks import assert_same

W = np.arange(6 * 8, dtype="float32").reshape(6, 8)


def calling(compute: Any, *constants: Any, outputs: int = 1) -> Any:
    """The input plus the first number of what a tensor function makes of constants."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((6, 8), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            made = builder.emit_te(compute, *map(relax.const, constants))
            first = made if outputs == 1 else builder.emit(relax.TupleGetItem(made, 0))
            flat = builder.emit(relax.op.reshape(first, (6, 8)))
            total = builder.emit_output(relax.op.add(x, flat))
        builder.emit_func_output(total)
    return builder.get()


def tiled(w: Any) -> Any:
    return te.compute((2, 6, 4), lambda i, j, k: w[j, i * 4 + k], name="tiled")


def doubled(w: Any) -> Any:
    return te.compute((6, 8), lambda i, j: w[i, j] * 2.0, name="doubled")


def calls(mod: Any) -> list[str]:
    found: list[str] = []
    relax.analysis.post_order_visit(
        mod["main"], lambda node: found.append(str(node.op)) if isinstance(node, relax.Call) else None
    )
    return [name for name in found if "call_tir" in name]


def test_what_a_schedule_lays_out_anew_is_computed_at_once() -> None:
    mod = calling(tiled, W)
    after, report = FoldConstantCopies(8).apply(mod)
    assert (report.fired, calls(after)) == (1, [])
    assert_same(after, mod, tolerance=0)


@pytest.mark.parametrize("method", ["check", "rewrite"])
def test_a_call_for_which_a_method_raises_stays_and_is_reported(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FoldConstantCopies, method, Mock(side_effect=KeyError(method)))
    after, report = FoldConstantCopies(8).apply(calling(tiled, W))
    assert (report.fired, report.errors.total(), len(calls(after))) == (0, 1, 1)
    assert list(report.errors) == [f"KeyError: '{method}'"]


def test_a_lack_of_memory_is_no_fault_of_the_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FoldConstantCopies, "check", Mock(side_effect=MemoryError))
    with pytest.raises(MemoryError):
        FoldConstantCopies(8).apply(calling(tiled, W))


@pytest.mark.parametrize("dtype", ["int64", "float64"])
def test_what_is_laid_out_anew_keeps_its_type(dtype: str) -> None:
    builder = relax.BlockBuilder()
    with builder.function("main", []):
        with builder.dataflow():
            laid = builder.emit_output(builder.call_te(tiled, relax.const(W, dtype)))
        builder.emit_func_output(laid)
    after, report = FoldConstantCopies(8).apply(builder.get())
    assert (report.fired, after["main"].ret_ty.dtype) == (1, dtype)


def test_two_results_stay_two() -> None:
    def both(w: Any) -> Any:
        return [tiled(w), te.compute((8, 6), lambda i, j: w[j, i], name="turned")]

    mod = calling(both, W, outputs=2)
    after, report = FoldConstantCopies(8).apply(mod)
    assert report.fired == 1
    assert_same(after, mod, tolerance=0)


@pytest.mark.parametrize(
    ("compute", "constants", "reason"),
    [
        pytest.param(doubled, (W,), "the function does more than copy numbers", id="a product"),
        pytest.param(
            tiled,
            (np.zeros((6, MOST_NUMBERS // 4), "float32"),),
            "the arguments are large: compiled code copies them faster",
            id="many numbers",
        ),
    ],
)
def test_other_functions_are_left_with_a_reason(compute: Any, constants: Any, reason: str) -> None:
    mod = calling(compute, *constants)
    after, report = FoldConstantCopies(8).apply(mod)
    assert (report.fired, dict(report.left)) == (0, {reason: 1})
    assert calls(after) == calls(mod)


def test_a_function_of_what_an_input_holds_is_left() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((6, 8), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(builder.call_te(tiled, x))
        builder.emit_func_output(out)
    _, report = FoldConstantCopies(8).apply(builder.get())
    assert dict(report.left) == {"an argument of the function is computed": 1}


def test_what_is_left_out_of_a_padded_layout_is_zero() -> None:
    padded = te.placeholder((6, 8), name="w")
    out = te.compute(
        (8, 8), lambda i, j: tvm.tirx.if_then_else(i < 6, padded[tvm.te.min(i, 5), j], 0.0), name="padded"
    )
    with pytest.raises(Leave):
        run_copies(te.create_prim_func([padded, out]), [W])
