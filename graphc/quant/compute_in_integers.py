"""Between decoding and encoding: products and moves of the bytes themselves."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from graphc.core.graph import Graph, operator_name
from graphc.core.graph_pass import Build, Pass
from graphc.quant.int8_instructions import needed_instruction
from graphc.quant.integer_products import multiply
from graphc.quant.move_bytes import MOVES, join, limit, move
from graphc.quant.unsigned_bytes import decode, encode

_RULES: Final[Mapping[str, Callable[[Any, Graph], Build]]] = {
    "relax.quantize": encode,
    "relax.dequantize": decode,
    "relax.nn.conv2d": multiply,
    "relax.matmul": multiply,
    "relax.concat": join,
    "relax.nn.relu": limit,
    **dict.fromkeys(MOVES, move),
}


class ComputeInIntegers(Pass[Build]):
    """Multiplies, moves, limits and joins the bytes themselves, between decoding and encoding."""

    name, match = "quant.compute_in_integers", tuple(_RULES)
    dtype, any_size, forward = "", True, True

    def check(self, call: Any, g: Graph) -> Build:
        build = _RULES[operator_name(call)](call, g)
        needed_instruction()
        return build

    def rewrite(self, call: Any, facts: Build, g: Graph) -> Any:
        return facts()
