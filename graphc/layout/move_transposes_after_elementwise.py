"""Move transposes after element-wise operators, so that a transpose further on cancels them.

A residual sum of two images that were transposed alike, for example, adds the images.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from mallorn.graphc.core.graph_pass import Graph, Leave, Pass
from mallorn.graphc.core.graph_rewriting import ELEMENTWISE, permutation

_TRANSPOSE = "relax.permute_dims"


@dataclass(frozen=True)
class TransposedOperands:
    """The operands of an operator before they were transposed, and the axes of the transposes."""

    values: list[Any]
    axes: tuple[int, ...]


class MoveTransposesAfterElementwise(Pass[TransposedOperands]):
    """Moves the transposes of an element-wise operator's operands to its result."""

    name, match = "move_transposes_after_elementwise", ELEMENTWISE
    forward = True  # whole chains of operators move

    def check(self, call: Any, g: Graph) -> TransposedOperands:
        transposes = [g.producer(value, _TRANSPOSE) for value in call.args]
        axes = next((permutation(transpose) for transpose in transposes if transpose is not None), None)
        if axes is None:
            raise Leave
        values = []
        for value, transpose in zip(call.args, transposes, strict=True):
            if transpose is not None and permutation(transpose) == axes:
                values.append(transpose.args[0])
            elif not isinstance(value.ty, relax.TensorType) or not value.ty.ndim:
                values.append(value)  # a single number
            elif g.is_constant(value) and value.ty.ndim <= len(axes):
                array = g.array(value)
                array = array.reshape((1,) * (len(axes) - array.ndim) + array.shape)
                values.append(g.constant(np.ascontiguousarray(array.transpose(np.argsort(axes)))))
            else:
                raise Leave("an operand is not transposed like the other one")
        return TransposedOperands(values, axes)

    def rewrite(self, call: Any, facts: TransposedOperands, g: Graph) -> Any:
        return relax.op.permute_dims(relax.Call(call.op, facts.values, call.attrs), list(facts.axes))
