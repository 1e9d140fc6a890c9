"""Lower onnxruntime's own operators, which optimisers and LLM tools write, to standard ones."""

from collections.abc import Callable, Mapping
from math import sqrt

import numpy as np

from graphc.onnx import (
    lower_contrib_grouped_query_attention,
    lower_contrib_multihead_attention,
    lower_contrib_norms,
)
from graphc.onnx.node_rewriter import NodeRewriter

DOMAIN = "com.microsoft"
HOMELESS = frozenset(("SimplifiedLayerNormalization",))  # written under ONNX's own domain


def _gelu(form: NodeRewriter) -> None:
    """Lower Gelu and BiasGelu by the error function."""
    data, *bias = form.node.input
    if bias:
        data = form.write("Add", data, bias[0])
    curve = form.write("Erf", form.write("Mul", data, form.number(sqrt(0.5))))
    half = form.write("Mul", data, form.number(0.5))
    form.write("Mul", half, form.write("Add", curve, form.number(1.0)), name=form.node.output[0])


def _fast_gelu(form: NodeRewriter) -> None:
    """Lower FastGelu by the hyperbolic tangent."""
    data, *bias = form.node.input
    if bias and bias[0]:
        data = form.write("Add", data, bias[0])
    cube = form.write("Mul", form.write("Mul", data, data), data)
    inner = form.write("Add", data, form.write("Mul", cube, form.number(0.044715)))
    curve = form.write("Tanh", form.write("Mul", inner, form.number(sqrt(2 / np.pi))))
    half = form.write("Mul", data, form.number(0.5))
    form.write("Mul", half, form.write("Add", curve, form.number(1.0)), name=form.node.output[0])


def _quick_gelu(form: NodeRewriter) -> None:
    (data,) = form.node.input
    gate = form.write("Sigmoid", form.write("Mul", data, form.number(form.attribute("alpha", 1.702))))
    form.write("Mul", data, gate, name=form.node.output[0])


def _product(form: NodeRewriter) -> None:
    """Lower FusedMatMul. Raises ValueError if it transposes batches or unknown shapes."""
    if form.attribute("transBatchA", 0) or form.attribute("transBatchB", 0):
        raise ValueError("its FusedMatMul transposes batches")
    factors = []
    for at, name in enumerate(form.node.input):
        sizes = form.sizes(at)
        if form.attribute(f"trans{'AB'[at]}", 0):
            if sizes is None:
                raise ValueError("the sizes of its FusedMatMul are not known")
            axes = list(range(len(sizes)))
            name = form.write("Transpose", name, perm=[*axes[:-2], axes[-1], axes[-2]])
        factors.append(name)
    alpha = form.attribute("alpha", 1.0)
    if alpha != 1.0:
        factors[0] = form.write("Mul", factors[0], form.number(alpha))
    form.write("MatMul", *factors, name=form.node.output[0])


RULES: Mapping[str, Callable[[NodeRewriter], None]] = {
    "Attention": lower_contrib_multihead_attention.packed_attention,
    "BiasGelu": _gelu,
    "EmbedLayerNormalization": lower_contrib_norms.embedding,
    "FastGelu": _fast_gelu,
    "FusedMatMul": _product,
    "Gelu": _gelu,
    "GroupQueryAttention": lower_contrib_grouped_query_attention.attention,
    "MultiHeadAttention": lower_contrib_multihead_attention.attention,
    "QuickGelu": _quick_gelu,
    "SimplifiedLayerNormalization": lower_contrib_norms.rms_norm,
    "SkipLayerNormalization": lower_contrib_norms.skip_norm,
    "SkipSimplifiedLayerNormalization": lower_contrib_norms.skip_rms_norm,
}
