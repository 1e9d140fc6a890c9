"""Replace sequences of tensors by their tensors, so that no sequence operator is left.

Exporters write Python lists as sequences: a loop appends tensors that are joined later.
"""

from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import Any

import numpy as np
from onnx import NodeProto, helper


def process_sequence_operator(walk: Any, node: NodeProto) -> bool:
    """Replace a sequence operator by operators on tensors; return False if impossible."""
    rule = _RULES.get(node.op_type)
    return rule is not None and not node.domain and rule(walk, node)


def unsqueeze(walk: Any, tensor: str, axis: int, result: str) -> None:
    """Add an axis to a tensor by an Unsqueeze node in the form that the opset requires."""
    if walk.opset < 13:
        walk.node(helper.make_node("Unsqueeze", [tensor], [result], axes=[axis]))
        return
    walk.set_value(f"{result}/axis", np.array([axis], "int64"))
    walk.node(helper.make_node("Unsqueeze", [tensor, f"{result}/axis"], [result]))


def _known_sequence(walk: Any, node: NodeProto) -> list[str] | None:
    tensors: list[str] | None = walk.sequences.get(node.input[0])
    return tensors


def _sequence_position(walk: Any, node: NodeProto, index: int, default: int) -> int | None:
    """Return the position given by input `index`, or the default; None if it is unknown."""
    if len(node.input) <= index or not node.input[index]:
        return default
    value = walk.value(node.input[index])
    return None if value is None else int(np.ravel(value)[0])


def _construct(walk: Any, node: NodeProto) -> bool:
    walk.sequences[node.output[0]] = list(node.input)
    return True


def _identity(walk: Any, node: NodeProto) -> bool:
    tensors = _known_sequence(walk, node)
    if tensors is not None:
        walk.sequences[node.output[0]] = tensors
    return tensors is not None


def _insert(walk: Any, node: NodeProto) -> bool:
    tensors = _known_sequence(walk, node)
    place = None if tensors is None else _sequence_position(walk, node, 2, len(tensors))
    if tensors is None or place is None:
        return False
    place = place if place >= 0 else len(tensors) + place
    walk.sequences[node.output[0]] = [*tensors[:place], node.input[1], *tensors[place:]]
    return True


def _erase(walk: Any, node: NodeProto) -> bool:
    tensors = _known_sequence(walk, node)
    place = None if tensors is None else _sequence_position(walk, node, 1, len(tensors) - 1)
    if tensors is None or place is None:
        return False
    walk.sequences[node.output[0]] = [
        tensor for index, tensor in enumerate(tensors) if index != place % len(tensors)
    ]
    return True


def _element(walk: Any, node: NodeProto) -> bool:
    tensors, place = _known_sequence(walk, node), _sequence_position(walk, node, 1, 0)
    if tensors is None or place is None or not -len(tensors) <= place < len(tensors):
        return False
    walk.node(helper.make_node("Identity", [tensors[place]], [node.output[0]]))
    return True


def _length(walk: Any, node: NodeProto) -> bool:
    tensors = _known_sequence(walk, node)
    if tensors is not None:
        walk.set_value(node.output[0], np.array(len(tensors), "int64"))
    return tensors is not None


def _concatenate(walk: Any, node: NodeProto) -> bool:
    tensors, attributes = _known_sequence(walk, node), _attributes(node)
    if not tensors:
        return False
    if attributes.get("new_axis", 0):
        parts = [f"{node.output[0]}/part_{index}" for index in range(len(tensors))]
        for tensor, part in zip(tensors, parts, strict=True):
            unsqueeze(walk, tensor, attributes["axis"], part)
        tensors = parts
    walk.node(helper.make_node("Concat", tensors, [node.output[0]], axis=attributes["axis"]))
    return True


def _split(walk: Any, node: NodeProto) -> bool:
    """Process SplitToSequence by gathering each piece; return False for unknown sizes."""
    attributes, has_lengths = _attributes(node), len(node.input) > 1
    axis, size = attributes.get("axis", 0), walk.size(node.input[0], attributes.get("axis", 0))
    lengths = walk.value(node.input[1]) if has_lengths else np.array(1)
    if size is None or lengths is None:
        return False
    if lengths.ndim:
        sizes = [int(length) for length in lengths]
    else:
        step = int(lengths)
        sizes = [min(step, size - start) for start in range(0, size, step)]
    is_flat = not has_lengths and not attributes.get("keepdims", 1)
    parts = [f"{node.output[0]}/part_{index}" for index in range(len(sizes))]
    for part, start, length in zip(parts, (0, *accumulate(sizes)), sizes, strict=False):
        places = np.arange(start, start + length, dtype="int64")
        walk.set_value(f"{part}/places", places[0] if is_flat else places)
        walk.node(helper.make_node("Gather", [node.input[0], f"{part}/places"], [part], axis=axis))
    walk.sequences[node.output[0]] = parts
    return True


def _attributes(node: NodeProto) -> dict[str, Any]:
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


_RULES: Mapping[str, Callable[[Any, NodeProto], bool]] = {
    "ConcatFromSequence": _concatenate,
    "Identity": _identity,
    "SequenceAt": _element,
    "SequenceConstruct": _construct,
    "SequenceEmpty": _construct,
    "SequenceErase": _erase,
    "SequenceInsert": _insert,
    "SequenceLength": _length,
    "SplitToSequence": _split,
}
