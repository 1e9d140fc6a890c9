"""Small networks of 8 and 4 bits, written as quantisers write them: what graph passes of bytes meet."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from onnx import ModelProto, TensorProto, helper

from zoo.command import Networks
from zoo.graph import GraphBuilder

MICROSOFT: Final = "com.microsoft"
BLOCK: Final = 32


class QuantisedGraph(GraphBuilder):
    """A builder whose values may be stored in 8 bits."""

    def __init__(self, name: str, seed: int, data: str = "uint8") -> None:
        super().__init__(name, seed)
        self._bytes = np.random.default_rng(seed)
        self._data = data
        self._steps = 0

    def scale(self, zero: int, dtype: str = "") -> tuple[str, str]:
        """A scale of its own, and a zero point."""
        self._steps += 1
        at = self._steps
        return (
            self.constant(f"scale_{at}", np.float32(0.01 + at / 1000)),
            self.constant(f"zero_{at}", np.array(zero, dtype or self._data)),
        )

    def bytes_(self, name: str, shape: Sequence[int], low: int = -127, high: int = 128) -> str:
        """Stored weights of 8 bits, with a sign where `low` has one."""
        values = self._bytes.integers(low, high, shape)
        return self.constant(name, values.astype("int8" if low < 0 else "uint8"))

    def stored(self, x: str, zero: int = 0) -> str:
        """The value after it was stored in 8 bits."""
        steps = self.scale(zero)
        return self.op("DequantizeLinear", self.op("QuantizeLinear", x, *steps), *steps)

    def decoded(self, name: str, shape: Sequence[int], axis: int) -> str:
        """Weights that a node decodes, with a scale for each output."""
        scales = np.linspace(0.01, 0.02, shape[axis], dtype="float32")
        parts = self.bytes_(name, shape), self.constant(f"{name}.scales", scales)
        zeros = self.constant(f"{name}.zeros", np.zeros(shape[axis], "int8"))
        return self.op("DequantizeLinear", *parts, zeros, axis=axis)

    def convolved(self, x: str, name: str, shape: Sequence[int], **attrs: Any) -> str:
        """A convolution of decoded weights, which keeps sizes."""
        pads = [size // 2 for size in shape[2:]] * 2
        return self.op("Conv", x, self.decoded(name, shape, 0), pads=pads, **attrs)


def picture(seed: int) -> ModelProto:
    """Decoded and encoded around a residual sum, a depthwise convolution, a pool and a dense layer."""
    g = QuantisedGraph("picture", seed)
    x = g.stored(g.input("x", (1, 3, 16, 16)), 117)
    first = g.op("Relu", g.convolved(x, "first", (16, 3, 3, 3), strides=[2, 2]))
    first = g.op("MaxPool", g.stored(first), kernel_shape=[3, 3], pads=[1] * 4)
    both = g.stored(g.op("Add", g.stored(g.convolved(first, "second", (16, 16, 3, 3)), 90), first), 40)
    each = g.stored(g.op("Clip", g.convolved(both, "each", (16, 1, 3, 3), group=16), *_limits(g)))
    joined = g.op("Concat", each, each, axis=1)
    point = g.op("Flatten", g.stored(g.op("GlobalAveragePool", joined)))
    g.op("Gemm", point, g.decoded("dense", (24, 32), 0), transB=1)
    return g.build("y", (1, 24))


def _limits(g: GraphBuilder) -> tuple[str, str]:
    return g.scalar("least", 0), g.scalar("most", 6)


def words(seed: int) -> ModelProto:
    """Decoded and encoded around products of rows with a sign."""
    g = QuantisedGraph("words", seed, "int8")
    x = g.stored(g.input("x", (2, 7, 30)), -3)
    hidden = g.stored(g.op("Relu", g.op("MatMul", x, g.decoded("first", (30, 48), 1))), -128)
    g.op("Sigmoid", g.op("MatMul", hidden, g.decoded("second", (48, 40), 1)))
    return g.build("y", (2, 7, 40))


def operators(seed: int) -> ModelProto:
    """Products that take bytes and give bytes, dense and depthwise."""
    g = QuantisedGraph("operators", seed)
    first, between, last, other = g.scale(117), g.scale(9), g.scale(60), g.scale(0, "int8")
    encoded = g.op("QuantizeLinear", g.input("x", (2, 3, 9, 8)), *first)
    dense = g.bytes_("dense", (16, 3, 3, 3))
    convolved = g.op("QLinearConv", encoded, *first, dense, *other, *between, pads=[1] * 4)
    each = g.bytes_("each", (16, 1, 3, 3))
    depthwise = g.op("QLinearConv", convolved, *between, each, *other, *last, group=16, strides=[2, 2])
    rows = g.op("Flatten", depthwise)
    product = g.op("QLinearMatMul", rows, *last, g.bytes_("rows", (192, 32)), *other, *between)
    g.op("DequantizeLinear", product, *between)
    return g.build("y", (2, 32))


def dynamic(seed: int) -> ModelProto:
    """A product of bytes whose scale and zero point are computed."""
    g = QuantisedGraph("dynamic", seed)
    x = g.input("x", (5, 24))
    encoded = g.op("DynamicQuantizeLinear", x)
    node = g.op("MatMulInteger", encoded, g.bytes_("w", (24, 48)), f"{encoded}.zero")
    g.op("Mul", g.op("Cast", node, to=TensorProto.FLOAT), g.constant("scale", np.float32(0.01)))
    made = g.build("y", (5, 48))
    made.graph.node[0].output.extend([f"{encoded}.scale", f"{encoded}.zero"])
    return made


def blocks(seed: int) -> ModelProto:
    """Products with weights of 4 and 8 bits in blocks, of rows that a table of 4 bits gives."""
    g = QuantisedGraph("blocks", seed)
    places = g.input("x", (2, 3), TensorProto.INT64)
    table = g.bytes_("table", (40, 32), 0, 256), places, _scales(g, "table", 80, (40, 2))
    attrs = {"bits": 4, "block_size": BLOCK, "gather_axis": 0, "quantize_axis": 1}
    rows = g.op("GatherBlockQuantized", *table, domain=MICROSOFT, **attrs)
    few = _product(g, rows, "few", (64, 96), 4)
    _product(g, few, "many", (96, 40), 8)
    made = g.build("y", (2, 3, 40))
    made.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
    return made


def _product(g: QuantisedGraph, x: str, name: str, sizes: tuple[int, int], bits: int) -> str:
    inputs, outputs = sizes
    count = inputs // BLOCK
    weights = g.bytes_(name, (outputs, count, BLOCK * bits // 8), 0, 256)
    zeros = g.bytes_(f"{name}.zeros", (outputs * -(-count * bits // 8),), 0, 256)
    given = x, weights, _scales(g, name, outputs * count, (outputs * count,)), zeros
    attrs = {"bits": bits, "block_size": BLOCK, "K": inputs, "N": outputs}
    return g.op("MatMulNBits", *given, domain=MICROSOFT, **attrs)


def _scales(g: GraphBuilder, name: str, count: int, shape: tuple[int, ...]) -> str:
    values = np.linspace(0.01, 0.02, count, dtype="float32")
    return g.constant(f"{name}.scales", values.reshape(shape))


QUANTISED: Final[Networks] = {
    "picture-int8": picture,
    "words-int8": words,
    "operators-int8": operators,
    "dynamic-int8": dynamic,
    "blocks-int4": blocks,
}
