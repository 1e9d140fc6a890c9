"""Convolutions with outputs that fill no whole vectors: the same numbers from whole ones."""

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from workers.tvm.sketches import design_space
from workers.tvm.templates import vectors

TARGET = '{"kind":"llvm","mcpu":"haswell","num-cores":2}'
STEPS = ("LegalizeOps", "AnnotateTIROpPattern", "FuseOps", "FuseTIR")


def network(
    kernel: int = 1, outputs: int = 24, channels: int = 6, *, biased: bool = False, **attrs: Any
) -> Any:
    """A module of one convolution in NHWC."""
    inner = channels // attrs.get("groups", 1)
    weights = random(kernel, kernel, inner, outputs)
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2, 7, 9, channels), "float32"))
    layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
    with builder.function("main", [x]):
        with builder.dataflow():
            result = relax.op.nn.conv2d(x, relax.const(weights), **layouts, **attrs)
            if biased:
                result = relax.op.add(builder.emit(result), relax.const(random(outputs)))
            output = builder.emit_output(result)
        builder.emit_func_output(output)
    return builder.get()


def random(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype("float32")


def rewritten(mod: Any) -> Any | None:
    """The module after the pass; None where the pass left it alone."""
    after = vectors.vectors()(mod)
    return None if len(after.functions) == len(mod.functions) else after


def run(mod: Any, x: Any) -> Any:
    vm = relax.VirtualMachine(relax.build(mod, tvm.target.Target("llvm")), tvm.cpu())
    return vm["main"](tvm.runtime.tensor(x)).numpy()


@pytest.mark.parametrize("kernel", [1, 3], ids=lambda kernel: f"{kernel} x {kernel}")
@pytest.mark.parametrize("outputs", [24, 28, 40])
@pytest.mark.parametrize("strides", [(1, 1), (2, 1)], ids=str)
@pytest.mark.parametrize("padding", [0, (1, 0, 2, 1)], ids=str)
def test_the_numbers_are_those_of_the_convolution(
    kernel: int, outputs: int, strides: Any, padding: Any
) -> None:
    mod = network(kernel, outputs, strides=strides, padding=padding)
    after = rewritten(mod)
    assert after is not None
    x = random(2, 7, 9, 6)
    expected = run(mod, x)
    assert np.abs(run(after, x) - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize(
    "mod",
    [
        network(outputs=32),
        network(outputs=8),
        network(outputs=17),
        network(channels=24, groups=24, outputs=24, kernel=3),
        network(kernel=3, dilation=2),
    ],
    ids=["whole vectors", "half a vector", "nearly all for nothing", "depthwise", "dilation"],
)
def test_others_stay_as_they_are(mod: Any) -> None:
    assert rewritten(mod) is None


def test_what_follows_is_computed_where_the_tile_is() -> None:
    after = rewritten(network(biased=True))
    assert after is not None
    with tvm.target.Target({"kind": "llvm", "num-cores": 2}), tvm.transform.PassContext(opt_level=3):
        steps = [getattr(relax.transform, f"{name}")() for name in STEPS]
        fused = tvm.transform.Sequential(steps)(after)
    (function,) = (fused[var] for var in fused.functions if var.name_hint.startswith("fused_whole"))
    tir = tvm.ir.save_json(tvm.IRModule({"main": function.with_attr("global_symbol", "main")}))
    sketches = design_space(tir, TARGET)
    assert sorted(sketch["trace"].count("ReverseComputeAt") for sketch in sketches) == [0, 1, 1]
    assert all(sketch["trace"].count('"ComputeInline"') == 1 for sketch in sketches)
