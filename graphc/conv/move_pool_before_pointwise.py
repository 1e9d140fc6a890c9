"""Move average pools before the pointwise convolutions whose results they read.

Both are linear, so they commute. A 2 x 2 pool leaves a quarter of the pixels to multiply.
"""

from dataclasses import dataclass
from typing import Any

from tvm import relax

from mallorn.graphc.core.graph_pass import Graph, Leave, Pass
from mallorn.graphc.core.graph_rewriting import copy_convolution, is_channels_last, sizes_of
from mallorn.graphc.fold.channel_affine import ChannelAffine, affine_chain, identity

POOL = "relax.nn.avg_pool2d"


@dataclass(frozen=True)
class PooledConvolution:
    """The pointwise convolution that a pool reads, and the constants added between them."""

    convolution: Any
    affine: ChannelAffine


class MovePoolBeforePointwise(Pass[PooledConvolution]):
    """Pools the input of a pointwise convolution instead of its output, to multiply fewer pixels."""

    name, match = "move_pool_before_pointwise", (POOL,)
    after = ("fold_batch_norm",)

    def check(self, call: Any, g: Graph) -> PooledConvolution:
        if any(map(int, call.attrs.padding)) or call.attrs.ceil_mode or call.attrs.layout != "NHWC":
            raise Leave("the pooling pads or rounds up, or channels are not last")
        sizes, pooled = sizes_of(call.args[0]), sizes_of(call)
        if pooled[1] * pooled[2] >= sizes[1] * sizes[2]:
            raise Leave("the pooling does not reduce the number of pixels")
        # Split off per-channel constants that are added last.
        value, ndim = call.args[0], call.args[0].ty.ndim
        addition = g.producer(value, "relax.add") if g.has_one_reader(value) else None
        affine, links = affine_chain(addition, g) if addition is not None else (identity(ndim), [])
        if links and not affine.is_scaled() and all(axis == ndim - 1 for axis in affine.varying_axes()):
            value = links[0].value
        else:
            affine = identity(ndim)
        source = g.producer(value, "relax.nn.conv2d") if g.has_one_reader(value) else None
        if source is not None:
            unit_attributes = (*source.attrs.strides, *sizes_of(source.args[1])[:2])
            is_pointwise = all(int(number) == 1 for number in unit_attributes)
            if is_pointwise and is_channels_last(source) and not any(map(int, source.attrs.padding)):
                return PooledConvolution(source, affine)
        raise Leave("no pointwise convolution computes the input for this operator only")

    def rewrite(self, call: Any, facts: PooledConvolution, g: Graph) -> Any:
        data, weights = facts.convolution.args
        pooled = relax.Call(call.op, [data], call.attrs)
        product = copy_convolution(facts.convolution, pooled, weights)
        if not facts.affine.is_shifted():
            return product
        return relax.op.add(product, relax.const(facts.affine.shift.astype("float32")))
