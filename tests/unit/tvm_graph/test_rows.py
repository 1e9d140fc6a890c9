"""Softmax and layer norm a row at a time: TVM's numbers, in one loop over rows."""

import re
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from workers.tvm.rebuild import rebuild
from workers.tvm.sketches import design_space
from workers.tvm.templates import rows

TARGET = '{"kind":"llvm","mcpu":"haswell","num-cores":2}'
SHAPES = [(3, 32), (1, 4, 5, 128), (2, 3, 48)]


def network(shape: tuple[int, ...], operator: Any, dtype: str = "float32") -> Any:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, dtype))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(operator(x)))
    return builder.get()


def softmax(axis: int = -1) -> Any:
    return lambda x: relax.op.nn.softmax(x, axis)


def layer_norm(size: int, **options: Any) -> Any:
    gamma, beta = (relax.const(values) for values in random(2, size))
    options = {"axes": [-1], "epsilon": 1e-5, **options}
    return lambda x: relax.op.nn.layer_norm(x, gamma, beta, **options)


def rewritten(mod: Any) -> Any | None:
    """The module after the pass; None where the pass left it alone."""
    after = rows.rows()(mod)
    return None if len(after.functions) == len(mod.functions) else after


def run(mod: Any, x: Any) -> Any:
    vm = relax.VirtualMachine(relax.build(mod, tvm.target.Target("llvm")), tvm.cpu())
    return vm["main"](tvm.runtime.tensor(x)).numpy()


def random(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype("float32")


def assert_same(mod: Any, x: Any) -> None:
    after, expected = rewritten(mod), run(mod, x)
    assert after is not None
    assert np.abs(run(after, x) - expected).max() <= 1e-6 * np.abs(expected).max()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("spread", [1, 30], ids=lambda spread: f"spread over {spread}")
def test_softmax_is_tvms(shape: tuple[int, ...], spread: int) -> None:
    assert_same(network(shape, softmax()), spread * random(*shape))


def test_what_a_mask_takes_out_of_a_softmax_gets_nothing() -> None:
    x = random(4, 32)
    x[:, 5:] = -np.inf
    after = rewritten(network((4, 32), softmax()))
    assert after is not None
    found = run(after, x)
    assert found[:, 5:].max() < 1e-30
    assert np.allclose(found.sum(axis=1), 1, atol=1e-6)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("offset", [0, 100], ids=lambda offset: f"mean of {offset}")
def test_layer_norm_is_that_of_exact_sums(shape: tuple[int, ...], offset: int) -> None:
    x = random(*shape) + np.float32(offset)
    after = rewritten(network(shape, layer_norm(shape[-1])))
    assert after is not None
    exact = x.astype("float64")
    centred = exact - exact.mean(-1, keepdims=True)
    gamma, beta = random(2, shape[-1])
    expected = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * gamma + beta
    assert np.abs(run(after, x) - expected).max() <= 1e-4 * np.abs(expected).max()


@pytest.mark.parametrize(
    "mod",
    [
        network((32, 3), softmax()),
        network((32, 32), softmax(axis=0)),
        network((32,), softmax()),
        network((4, 32), softmax(), dtype="float16"),
        network((4, 32, 32), softmax(axis=1)),
        network((4, 24), layer_norm(24)),
    ],
    ids=["no whole vectors", "columns", "one row", "half", "the axis between", "a vector and a half"],
)
def test_others_stay_as_they_are(mod: Any) -> None:
    assert rewritten(mod) is None


def test_a_layer_norm_over_two_axes_stays_as_it_is() -> None:
    gamma, beta = (relax.const(values) for values in random(2, 4, 32))
    norm = network((3, 4, 32), lambda x: relax.op.nn.layer_norm(x, gamma, beta, axes=[-2, -1]))
    assert rewritten(norm) is None


def test_rows_of_one_shape_share_their_function() -> None:
    twice = network((4, 32), lambda x: relax.op.nn.softmax(relax.op.nn.softmax(x)))
    after = rewritten(twice)
    assert after is not None
    assert len(after.functions) == 2


@pytest.mark.parametrize("operator", [softmax(), layer_norm(128)], ids=["softmax", "layer norm"])
def test_metaschedule_gives_rows_to_the_cores_and_leaves_them_whole(operator: Any) -> None:
    after = rewritten(network((1, 4, 128, 128), operator))
    assert after is not None
    (function,) = (after[var] for var in after.functions if var.name_hint.endswith("_rows"))
    tir = tvm.ir.save_json(tvm.IRModule({"main": function.with_attr("global_symbol", "main")}))
    (sketch,) = design_space(tir, TARGET)
    schedule = rebuild(tir, TARGET, sketch["trace"], [])
    assert schedule is not None
    text = schedule.mod.script()
    assert text.count("T.parallel(") == 1
    assert set(re.findall(r"T.vectorized\((\d+)\)", text)) == {"2", "4", "8", "16"}
