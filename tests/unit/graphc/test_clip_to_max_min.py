"""Clip, of which the importer makes tensor functions, becomes operators again."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from onnx import ModelProto, helper, numpy_helper
from tvm import relax, topi
from tvm.relax.frontend.onnx import from_onnx

from mallorn.graphc.layout.prepare_convert_layout import ClipToMaxMin
from tests.unit.graphc.networks import random, run
from tests.unit.graphc.pass_conformance import PassConformance


def bounded(name: str, compute: Any, bound: Any) -> Any:
    """A module of a tensor function of two rows and a bound."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2, 3), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            call = builder.call_te(compute, x, bound, primfunc_name_hint=name)
            result = builder.emit_output(call)
        builder.emit_func_output(result)
    return builder.get()


class TestClipToMaxMin(PassConformance):
    PASS = ClipToMaxMin
    BEFORE = "gv[2, 3] = maximum1(x[2, 3], constant[])"  # the importer's second
    AFTER = "gv[2, 3] = maximum(x[2, 3], constant[])"

    def fires(self) -> Any:
        return bounded("maximum1", topi.maximum, relax.const(0.5, "float32"))

    def leaves(self) -> Mapping[str, Any]:
        row = relax.const(np.zeros(3, "float32"))
        return {
            "the function is neither a maximum nor a minimum": bounded(
                "add", topi.add, relax.const(1.0, "float32")
            ),
            "the bound is not a single number": bounded("minimum", topi.minimum, row),
        }


def test_both_bounds_of_a_clip_become_operators(build_model: Callable[..., ModelProto]) -> None:
    model = build_model([helper.make_node("Clip", ["x", "low", "high"], ["y"])])
    bounds = {"low": -0.5, "high": 0.25}
    model.graph.initializer.extend(numpy_helper.from_array(np.float32(at), to) for to, at in bounds.items())
    after, report = ClipToMaxMin().apply(from_onnx(model))
    assert (report.fired, "call_tir" in after["main"].script()) == (2, False)
    x = random(4, 8)
    assert np.array_equal(run(after, x), np.clip(x, -0.5, 0.25))
