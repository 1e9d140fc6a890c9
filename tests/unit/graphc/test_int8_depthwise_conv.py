"""Depthwise convolutions of bytes: the sums of the module as it was, in strips of real numbers."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from mallorn.core.values.machine import assume_typical_cpu
from mallorn.graphc.quant.int8_depthwise_conv import Int8DepthwiseConv
from mallorn.searchers.roller.rank_candidates import ranked
from mallorn.workers.tvm.programs.program_blocks import blocks_of, operator_of, tensor_args
from mallorn.workers.tvm.programs.workload_key import rename_blocks_canonically
from mallorn.workers.tvm.space.sketches import design_space
from tests.unit.graphc import networks
from tests.unit.graphc.networks import HASWELL, NHWC, assert_same, call, fused, program, random_of, scheduled
from tests.unit.graphc.pass_conformance import PassConformance

DATA = (2, 9, 12, 48)


def network(
    *,
    data: tuple[int, ...] = DATA,
    kernel: int = 3,
    dtype: str = "uint8",
    zero: int = 7,
    followed: bool = False,
    **attrs: Any,
) -> Any:
    """A module of one convolution of bytes, as `integers` leaves it."""
    channels = data[-1]
    weights = random_of("int8", kernel, kernel, 1, channels).astype("float32")

    def body(emit: Any, x: Any) -> Any:
        whole = x
        if zero:
            wide = emit(relax.op.astype(x, "int16"))
            whole = emit(relax.op.subtract(wide, relax.const(zero, "int16")))
        real = emit(relax.op.astype(whole, "float32"))
        options = {"groups": channels, **NHWC, **attrs}
        found = relax.op.nn.conv2d(real, relax.const(weights), **options)
        return relax.op.nn.relu(emit(found)) if followed else found

    return networks.network(body, data, dtype=dtype)


@pytest.mark.pairwise
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("zero", [0, 7, -3])
@pytest.mark.parametrize(
    ("kernel", "attrs"),
    [
        (3, {"padding": 1}),
        (3, {"strides": 2, "padding": (0, 1, 1, 0)}),
        (5, {"strides": (1, 2), "padding": (2, 1, 0, 3)}),
        (3, {"dilation": 2, "padding": 2}),
        (1, {}),
    ],
    ids=str,
)
def test_sums_are_those_of_the_module_as_it_was(dtype: str, zero: int, kernel: int, attrs: Any) -> None:
    mod = network(dtype=dtype, zero=zero, kernel=kernel, **attrs)
    assert_same(networks.rewritten(Int8DepthwiseConv(), mod), mod, tolerance=0)


@pytest.mark.parametrize("channels", [4, 24, 40])
def test_channels_may_fill_narrow_vectors(channels: int) -> None:
    mod = network(data=(1, 6, 6, channels), padding=1)
    assert_same(networks.rewritten(Int8DepthwiseConv(), mod), mod, tolerance=0)


class TestInt8DepthwiseConv(PassConformance):
    PASS = Int8DepthwiseConv
    BEFORE = """
lv[1, 3, 3, 8] = astype(x0[1, 3, 3, 8])
lv1[1, 3, 3, 8] = subtract(lv[1, 3, 3, 8], constant[])
lv2[1, 3, 3, 8] = astype(lv1[1, 3, 3, 8])
gv[1, 1, 1, 8] = nn.conv2d(lv2[1, 3, 3, 8], constant[3, 3, 1, 8])
"""
    AFTER = """
lv[1, 1, 1, 8] = taps(x0[1, 3, 3, 8], constant[1], constant[3, 3, 1, 8])
gv[1, 1, 1, 8] = subtract(lv[1, 1, 1, 8], constant[8])
"""

    def fires(self) -> Any:
        return network(data=(1, 3, 3, 8))

    def leaves(self) -> Mapping[str, Any]:
        return {
            "the data is not int8 or uint8": networks.convolution(DATA, (3, 3, 1, 48), groups=48),
            "the channels do not fill vectors of 4": network(data=(1, 6, 6, 6)),
            "the convolution is not depthwise": plain(),
            "the channels are not last, or the weights are computed": network(
                data=(1, 6, 6, 8), out_layout="NCHW"
            ),
        }


def test_a_single_channel_stays_as_it_is() -> None:
    assert networks.rewritten(Int8DepthwiseConv(), network(data=(1, 6, 6, 1), padding=1)) is None


def plain() -> Any:
    def body(emit: Any, x: Any) -> Any:
        real = emit(relax.op.astype(x, "float32"))
        return relax.op.nn.conv2d(real, networks.weights(3, 3, 8, 8), **NHWC)

    return networks.network(body, (1, 6, 6, 8), dtype="uint8")


@pytest.mark.parametrize("strides", [1, 2])
@pytest.mark.parametrize("lanes", [8, 16])
def test_strips_hold_the_bytes_that_they_make_real(strides: int, lanes: int) -> None:
    after = networks.rewritten(Int8DepthwiseConv(lanes), network(followed=True, padding=1, strides=strides))
    mod = rename_blocks_canonically(program(fused(after), "fused_taps"))
    assert operator_of(blocks_of(mod)) == "depthwise_conv2d"
    (sketch,) = design_space(tvm.ir.save_json(mod), HASWELL)
    decisions = ranked([sketch], (), assume_typical_cpu(cores=2, lanes=8), 1)[0].decisions
    after = scheduled(mod, HASWELL, decisions)
    assert after.script().count("T.parallel(") == 1
    arrays = [random_of(dtype, *shape) for _, dtype, shape in tensor_args(mod)]
    np.testing.assert_allclose(call(after, *arrays), call(mod, *arrays), rtol=1e-5, atol=1e-3)
