"""Sequences of tensors are followed by the names of their tensors, so that no operator of them is left.

Exporters write Python's lists so: what a loop appends is joined behind it.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from onnx import NodeProto, helper


def follow(walk: Any, node: NodeProto) -> bool:
    """Walk what the node means in its place; False where that depends on the data."""
    rule = _RULES.get(node.op_type)
    return rule is not None and not node.domain and rule(walk, node)


def construct(name: str, tensors: Sequence[str]) -> NodeProto:
    """A node that makes the sequence, for one that takes it as it is."""
    return helper.make_node("SequenceConstruct" if tensors else "SequenceEmpty", list(tensors), [name])


def unsqueeze(walk: Any, tensor: str, axis: int, to: str) -> None:
    """Walk a new axis; until ONNX 12 it is an attribute."""
    if walk.opset < 13:
        walk.node(helper.make_node("Unsqueeze", [tensor], [to], axes=[axis]))
        return
    walk.know(f"{to}/axis", np.array([axis], "int64"))
    walk.node(helper.make_node("Unsqueeze", [tensor, f"{to}/axis"], [to]))


def _known(walk: Any, node: NodeProto) -> list[str] | None:
    found: list[str] | None = walk.sequences.get(node.input[0])
    return found


def _place(walk: Any, node: NodeProto, at: int, default: int) -> int | None:
    """A position that is an input; None where it is not known."""
    if len(node.input) <= at or not node.input[at]:
        return default
    found = walk.value(node.input[at])
    return None if found is None else int(np.ravel(found)[0])


def _made(walk: Any, node: NodeProto) -> bool:
    walk.sequences[node.output[0]] = list(node.input)
    return True


def _same(walk: Any, node: NodeProto) -> bool:
    known = _known(walk, node)
    if known is not None:
        walk.sequences[node.output[0]] = known
    return known is not None


def _inserted(walk: Any, node: NodeProto) -> bool:
    known = _known(walk, node)
    place = None if known is None else _place(walk, node, 2, len(known))
    if known is None or place is None:
        return False
    place = place if place >= 0 else len(known) + place
    walk.sequences[node.output[0]] = [*known[:place], node.input[1], *known[place:]]
    return True


def _erased(walk: Any, node: NodeProto) -> bool:
    known = _known(walk, node)
    place = None if known is None else _place(walk, node, 1, len(known) - 1)
    if known is None or place is None:
        return False
    walk.sequences[node.output[0]] = [each for at, each in enumerate(known) if at != place % len(known)]
    return True


def _taken(walk: Any, node: NodeProto) -> bool:
    known, place = _known(walk, node), _place(walk, node, 1, 0)
    if known is None or place is None or not -len(known) <= place < len(known):
        return False
    walk.node(helper.make_node("Identity", [known[place]], [node.output[0]]))
    return True


def _counted(walk: Any, node: NodeProto) -> bool:
    known = _known(walk, node)
    if known is not None:
        walk.know(node.output[0], np.array(len(known), "int64"))
    return known is not None


def _joined(walk: Any, node: NodeProto) -> bool:
    known, said = _known(walk, node), _attributes(node)
    if not known:
        return False
    if said.get("new_axis", 0):
        parts = [f"{node.output[0]}/part_{at}" for at in range(len(known))]
        for tensor, part in zip(known, parts, strict=True):
            unsqueeze(walk, tensor, said["axis"], part)
        known = parts
    walk.node(helper.make_node("Concat", known, [node.output[0]], axis=said["axis"]))
    return True


def _split(walk: Any, node: NodeProto) -> bool:
    """SplitToSequence into pieces of known sizes."""
    said, given = _attributes(node), len(node.input) > 1
    axis, size = said.get("axis", 0), walk.size(node.input[0], said.get("axis", 0))
    lengths = walk.value(node.input[1]) if given else np.array(1)
    if size is None or lengths is None:
        return False
    sizes = _sizes(size, lengths)
    flat = not given and not said.get("keepdims", 1)
    parts = [f"{node.output[0]}/part_{at}" for at in range(len(sizes))]
    for part, start, length in zip(parts, (0, *accumulate(sizes)), sizes, strict=False):
        at = np.arange(start, start + length, dtype="int64")
        walk.know(f"{part}/places", at[0] if flat else at)
        walk.node(helper.make_node("Gather", [node.input[0], f"{part}/places"], [part], axis=axis))
    walk.sequences[node.output[0]] = parts
    return True


def _sizes(size: int, lengths: Any) -> list[int]:
    if lengths.ndim:
        return [int(length) for length in lengths]
    step = int(lengths)
    return [min(step, size - start) for start in range(0, size, step)]


def _attributes(node: NodeProto) -> dict[str, Any]:
    return {each.name: helper.get_attribute_value(each) for each in node.attribute}


_RULES: Mapping[str, Callable[[Any, NodeProto], bool]] = {
    "ConcatFromSequence": _joined,
    "Identity": _same,
    "SequenceAt": _taken,
    "SequenceConstruct": _made,
    "SequenceEmpty": _made,
    "SequenceErase": _erased,
    "SequenceInsert": _inserted,
    "SequenceLength": _counted,
    "SplitToSequence": _split,
}
