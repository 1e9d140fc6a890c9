"""Reduce batch norms with constant statistics to scale and shift, or fold them into weights.

TVM's importer writes a batch norm as four operators. Constant folding alone leaves a
division by the standard deviation for every number.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from mallorn.graphc.core.graph_pass import Graph, Leave, Pass, operator_name
from mallorn.graphc.core.graph_rewriting import copy_convolution
from mallorn.graphc.fold.channel_affine import OPERATORS, ChannelAffine, affine_chain

# By layouts: the axis of output channels in a convolution's result and in its weights.
_OUTPUTS = {
    ("NCHW", "OIHW"): (1, 0),
    ("NCW", "OIW"): (1, 0),
    ("NHWC", "HWIO"): (3, 3),
    ("NWC", "WIO"): (2, 2),
}


@dataclass(frozen=True)
class AffineOfLinear:
    """A chain of scales and shifts, its input, and the matmul or convolution to scale."""

    affine: ChannelAffine
    value: Any
    linear: Any | None
    weights: Any = None  # of the linear operator, scaled


class FoldBatchNorm(Pass[AffineOfLinear]):
    """Merges operators with channel constants into one scale and shift, or into weights."""

    name, match = "fold_batch_norm", OPERATORS

    def check(self, call: Any, g: Graph) -> AffineOfLinear:
        affine, links = affine_chain(call, g)
        if not links:
            raise Leave("an operand is computed, or does not vary by channel only")
        reader = g.only_reader(g.variable, *OPERATORS)
        if reader is not None and len(affine_chain(reader, g)[1]) > len(links):
            raise Leave
        if not affine.varying_axes():
            raise Leave("the constants are single numbers")
        # Such chains cost nothing: TVM fuses them with their producers, whose tasks stay.
        kinds = {link.name in ("add", "subtract") for link in links}
        if len(links) == len(kinds) and all(link.name != "divide" for link in links):
            raise Leave("TVM fuses one multiplication and one addition anyway")
        value = links[0].value
        # The convolution or matmul that can take the scale, if only the chain reads it.
        linear = g.producer(value) if affine.is_scaled() and g.has_one_reader(value) else None
        if linear is None or len(linear.args) != 2 or not g.is_constant(linear.args[1]):
            return AffineOfLinear(affine, value, None)
        axes = _output_axes(linear)
        if axes is None or not set(affine.varying_axes()) <= {axes[0]}:
            return AffineOfLinear(affine, value, None)
        weights = g.array(linear.args[1])
        shape = [1] * weights.ndim
        shape[axes[1]] = affine.scale.size
        scaled_weights = (weights * affine.scale.reshape(shape)).astype(weights.dtype)
        return AffineOfLinear(affine, value, linear, scaled_weights)

    def rewrite(self, call: Any, facts: AffineOfLinear, g: Graph) -> Any:
        value, linear = facts.value, facts.linear
        if linear is not None:
            data, weights = linear.args[0], relax.const(facts.weights)
            is_product = operator_name(linear) == "relax.matmul"
            value = relax.op.matmul(data, weights) if is_product else copy_convolution(linear, data, weights)
        elif facts.affine.is_scaled():
            value = relax.op.multiply(value, _constant(facts.affine.scale))
        return relax.op.add(value, _constant(facts.affine.shift)) if facts.affine.is_shifted() else value


def _output_axes(call: Any) -> tuple[int, int] | None:
    """Return the axis of output channels in result and weights; None: another operator."""
    name = operator_name(call)
    if name == "relax.matmul" and call.args[1].ty.ndim == 2:
        return call.ty.ndim - 1, 1
    if name not in ("relax.nn.conv1d", "relax.nn.conv2d"):
        return None
    return _OUTPUTS.get((str(call.attrs.data_layout), str(call.attrs.kernel_layout)))


def _constant(values: Any) -> Any:
    return relax.const(np.asarray(values, "float32"))
