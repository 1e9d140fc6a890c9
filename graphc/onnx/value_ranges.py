"""Find which values integer inputs may take: lengths, flags and bytes by what the graph does with them.

A length that masks all of a signal would make every output zero, and hide wrong results.
"""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, helper
from onnx.reference import ReferenceEvaluator

from mallorn.graphc.onnx import fold_shapes, inline_functions

Range = tuple[int, int]  # lowest value, and highest exclusive
BITS = 32  # of the largest length
BYTES: Mapping[str, Range] = {"uint8": (0, 256), "int8": (-128, 128)}
# Operators through which a length, a flag or an index is followed; `Div` and `Add` count frames.
_NAMES = (
    "Abs Add And Cast Ceil Clip Div Expand Flatten Floor Identity Max Min Mod Mul Neg Not Reshape "
    "Round Slice Squeeze Sub Tile Transpose Unsqueeze"
)
_CARRIERS = frozenset(_NAMES.split())
_COMPARISONS = frozenset(("Less", "LessOrEqual", "Greater", "GreaterOrEqual"))
_LENGTH_NAME = re.compile(r"(^|_)lens?$|length", re.IGNORECASE)


def value_ranges(model: ModelProto, shapes: Mapping[str, Sequence[int]]) -> dict[str, Range]:
    """Return the range of each integer input whose use the graph shows: half to all of what a
    length limits; 0 and 1 for flags; a number that the graph compares with. `shapes` binds free
    dimensions. An input that may be an index is left out, unless its name says it is a length."""
    constants = {tensor.name for tensor in model.graph.initializer}
    types = {
        value.name: str(helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))
        for value in model.graph.input
        if value.name not in constants and value.type.tensor_type.elem_type
    }
    names = [name for name, dtype in types.items() if dtype.startswith(("int", "uint"))]
    if not names:
        return {}
    tracer = _Tracer(fold_shapes.fold(inline_functions.inline(model), shapes), shapes)
    ranges: dict[str, Range] = {}
    for name in names:
        lengths, equals, is_unknown = tracer.uses(name, np.dtype(types[name]))
        if not lengths and is_unknown and _LENGTH_NAME.search(name):
            lengths = tracer.named_sizes(name)
        if lengths:
            ranges[name] = (min(lengths) + 1) // 2, min(lengths) + 1
        elif not is_unknown:  # tokens may be compared with a number and looked up, too
            ranges[name] = (equals[0], equals[0] + 1) if equals else BYTES.get(types[name], (0, 2))
    return ranges


class _Tracer:
    """Follows inputs through a graph whose shapes are folded."""

    def __init__(self, model: ModelProto, shapes: Mapping[str, Sequence[int]]) -> None:
        self._opset = inline_functions.opset_of(model)
        self._folding = fold_shapes.Folding(model, shapes)
        self._folding.nodes(model.graph.node)
        self._inputs = [value.name for value in model.graph.input]
        self._readers: dict[str, list[NodeProto]] = defaultdict(list)
        for node in model.graph.node:
            for name in dict.fromkeys(node.input):
                self._readers[name].append(node)
        self._outputs = {value.name for value in model.graph.output}

    def uses(self, name: str, dtype: np.dtype[Any]) -> tuple[list[int], list[int], bool]:
        """Return what the graph does with an input and with what it computes from it alone: sizes
        that it limits as a length, numbers that it is compared with, and whether other uses are
        not understood (they may be look-ups)."""
        lengths, equals, is_unknown = list[int](), list[int](), not self._readers[name]
        derived, nodes = {name}, list[NodeProto]()
        for value in (pending := [name]):
            for node in self._readers[value]:
                others = [each for each in node.input if each and each not in derived]
                known = [self._folding.value(each) for each in others]
                constants = [np.asarray(each) for each in known if each is not None]
                has_constants = len(constants) == len(others)
                if (size := self._sequence_size(node, value)) is not None:
                    lengths.append(size)
                elif node.op_type in _COMPARISONS and has_constants and constants:
                    scope = [*nodes], value, name, dtype
                    lengths += filter(None, [self._limit(*scope, constants[0])])
                elif node.op_type == "Equal" and has_constants and sum(map(np.size, constants)) == 1:
                    equals += [n for n in map(int, np.ravel(constants[0])) if n not in (0, 1)]
                elif node.op_type in _CARRIERS and has_constants:
                    if node.output[0] not in derived:
                        derived.add(node.output[0])
                        nodes.append(node)
                        pending.append(node.output[0])
                elif self._is_integer(value):
                    is_unknown = True
        return lengths, equals, is_unknown or bool(derived & self._outputs)

    def named_sizes(self, name: str) -> list[int]:
        """Return the largest size of the input that a length's name begins with, or of all."""
        others = [other for other in self._inputs if other != name]
        others = [other for other in others if name.startswith(other)] or others
        sizes = [self._sizes(other)[1:] for other in others]
        return [max(chain.from_iterable(sizes))] if any(sizes) else []

    def _sizes(self, name: str) -> tuple[int, ...]:
        return fold_shapes.sizes_of(self._folding.types.get(name)) or ()

    def _is_integer(self, value: str) -> bool:
        """Return whether a value is an integer; one of unknown type counts as one."""
        kind = self._folding.types.get(value)
        number = kind.tensor_type.elem_type if kind is not None else 0
        return not number or helper.tensor_dtype_to_np_dtype(number).kind in "iu"

    def _sequence_size(self, node: NodeProto, value: str) -> int | None:
        """Return the size of the axis of time, if the value is the node's lengths."""
        attributes = {attribute.name: attribute.i for attribute in node.attribute}
        sizes = self._sizes(node.input[0]) if node.input else ()
        if node.op_type in ("GRU", "LSTM", "RNN") and list(node.input[4:5]) == [value]:
            axis = attributes.get("layout", 0)
        elif node.op_type == "ReverseSequence" and list(node.input[1:2]) == [value]:
            axis = attributes.get("time_axis", 0)
        else:
            return None
        return sizes[axis] if len(sizes) > axis else None

    def _limit(
        self, nodes: Sequence[NodeProto], result: str, name: str, dtype: np.dtype[Any], places: NDArray[Any]
    ) -> int | None:
        """Return the smallest length for which the graph compares every place as within it; None
        if the constant is no list of places, or no length is enough."""
        if places.size < 2 or len(np.unique(places)) != places.max() - places.min() + 1:
            return None
        inputs = {each for node in nodes for each in node.input if each}
        constants = {each: self._folding.value(each) for each in inputs}
        known = {each: value for each, value in constants.items() if value is not None}
        opset = [helper.make_opsetid("", self._opset)]
        function = helper.make_function("", "one", [name, *known], [result], list(nodes), opset)
        evaluator, shape = ReferenceEvaluator(function), self._sizes(name)

        def is_enough(length: int) -> bool:
            array = np.full(shape, length, dtype)
            (value,) = (array,) if result == name else evaluator.run(None, {name: array, **known}, {})
            return bool(np.min(value) > places.max())

        try:
            with np.errstate(all="ignore"):
                powers = (1 << bit for bit in range(min(BITS, np.iinfo(dtype).max.bit_length())))
                high = next(filter(is_enough, powers), 0)
                return bisect_left(range(high), True, key=is_enough) or None
        except Exception:  # what the reference cannot evaluate says nothing of lengths
            return None
