"""Sizes of the results of onnxruntime's own operators, which ONNX does not infer."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from onnx import NodeProto, TypeProto, helper

Sizes = tuple[int, ...]


def types(node: NodeProto, given: Sequence[tuple[int, Sizes] | None]) -> dict[str, TypeProto]:
    """Types of a node's results, by name; `given` are its inputs' element types and sizes, where known."""
    rule = _RULES.get(node.op_type) if node.domain == "com.microsoft" else None
    found = None if rule is None else rule(_attributes(node), given)
    return {} if found is None else {node.output[0]: helper.make_tensor_type_proto(*found)}


def _attributes(node: NodeProto) -> Mapping[str, Any]:
    return {each.name: helper.get_attribute_value(each) for each in node.attribute}


def _product(attrs: Mapping[str, Any], given: Sequence[Any]) -> tuple[int, Sizes] | None:
    if not given[0] or "N" not in attrs:
        return None
    kind, sizes = given[0]
    return kind, (*sizes[:-1], attrs["N"])


def _rows(attrs: Mapping[str, Any], given: Sequence[Any]) -> tuple[int, Sizes] | None:
    """Scales tell the type, and the sizes but along the blocks."""
    if len(given) < 3 or not all(given[:3]):
        return None
    (_, table), (_, places), (kind, scales) = given[:3]
    blocks, axis = attrs.get("quantize_axis", 1) % len(table), attrs.get("gather_axis", 0) % len(table)
    wide = [*scales]
    wide[blocks] = scales[blocks] * attrs.get("block_size", 128)
    return kind, (*wide[:axis], *places, *wide[axis + 1 :])


_RULES: Mapping[str, Callable[[Mapping[str, Any], Sequence[Any]], tuple[int, Sizes] | None]] = {
    "MatMulNBits": _product,
    "GatherBlockQuantized": _rows,
}
