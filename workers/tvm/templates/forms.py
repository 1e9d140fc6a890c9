"""Writes forms of ONNX operators that TVM's importer takes for others, or not at all, in forms that it takes.

Some of them it imports without a word, and computes something else: a resize that anti-aliases, for one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, TypeProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

inlining, weights = (
    import_module(f"{__package__}.{name}" if __package__ else name) for name in ("inlining", "weights")
)
_WHOLE = (TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64)
_RESIZED = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")


class Form:
    """A node, and the means to write others in its place."""

    def __init__(
        self, node: NodeProto, types: Mapping[str, TypeProto], values: Mapping[str, Any], opset: int
    ) -> None:
        self.node, self._types, self._values, self._opset = node, types, values, opset
        self.constants: list[TensorProto] = []
        self.nodes: list[NodeProto] = []

    def attribute(self, name: str, default: Any) -> Any:
        found = next((each for each in self.node.attribute if each.name == name), None)
        return default if found is None else helper.get_attribute_value(found)

    def has(self, output: int) -> bool:
        return len(self.node.output) > output and bool(self.node.output[output])

    def kind(self, at: int) -> int:
        """The type of an input's elements; 0 where it is not known."""
        known = self._types.get(self.node.input[at])
        return 0 if known is None else known.tensor_type.elem_type

    def sizes(self, at: int) -> tuple[int, ...] | None:
        """An input's sizes, where all are known."""
        known = self._types.get(self.node.input[at])
        if known is None or not known.tensor_type.HasField("shape"):
            return None
        dims = known.tensor_type.shape.dim
        return tuple(d.dim_value for d in dims) if all(d.HasField("dim_value") for d in dims) else None

    def value(self, at: int) -> Any | None:
        """An input's array, where it is a constant."""
        return self._values.get(self.node.input[at]) if len(self.node.input) > at else None

    def constant(self, value: Any) -> str:
        name = f"{self.node.output[0]}/constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def write(self, operator: str, *given: str, name: str = "", **attributes: Any) -> str:
        """A node more; the name of what it gives."""
        found = name or f"{self.node.output[0]}/step_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(given), [found], **attributes))
        return found

    def again(self, given: Sequence[str] | None = None, **attributes: Any) -> None:
        """The node with other inputs or attributes; an attribute of None is left out."""
        kept = NodeProto()
        kept.CopyFrom(self.node)
        del kept.attribute[:]
        kept.attribute.extend(each for each in self.node.attribute if each.name not in attributes)
        kept.attribute.extend(
            helper.make_attribute(name, value) for name, value in attributes.items() if value is not None
        )
        kept.input[:] = self.node.input if given is None else given
        self.nodes.append(kept)

    def reference(self, *given: Any) -> Any:
        """What ONNX's own reference makes of arrays."""
        names = [name if value is not None else "" for name, value in zip("abcdefgh", given, strict=False)]
        one = NodeProto()
        one.CopyFrom(self.node)
        one.input[:] = names
        imports = [helper.make_opsetid("", self._opset)]
        function = helper.make_function("", "one", [n for n in names if n], list(one.output), [one], imports)
        fed = {name: value for name, value in zip(names, given, strict=True) if name}
        found: Sequence[Any] = ReferenceEvaluator(function).run(None, fed, {})  # type: ignore[assignment]
        return found[0]


def rewrite(model: ModelProto) -> ModelProto:
    """The model with such forms replaced; itself where it has none. ValueError for those of training."""
    strange = [node for node in model.graph.node if node.op_type in _RULES and not node.domain]
    if not strange:
        return model
    types, values = inlining.types_of(model), _Values(model)
    opset = max((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=1)
    written = {}
    for node in strange:
        form = Form(node, types, values, opset)
        _RULES[node.op_type](form)
        if form.nodes:
            written[node.output[0]] = form
    return _with(model, written) if written else model


def _with(model: ModelProto, written: Mapping[str, Form]) -> ModelProto:
    result = ModelProto()
    result.CopyFrom(model)
    del result.graph.node[:]
    for node in model.graph.node:
        form = written.get(node.output[0]) if node.output else None
        result.graph.node.extend([node] if form is None else form.nodes)
        result.graph.initializer.extend([] if form is None else form.constants)
    return result


class _Values(Mapping[str, Any]):
    """Constants as arrays, made when they are asked for."""

    def __init__(self, model: ModelProto) -> None:
        self._tensors = {tensor.name: tensor for tensor in model.graph.initializer}

    def __getitem__(self, name: str) -> Any:
        return weights.array(self._tensors[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


def _batch_norm(form: Form) -> None:
    if form.attribute("training_mode", 0):
        raise ValueError("its BatchNormalization is in training: export the model in evaluation mode")


def _dropout(form: Form) -> None:
    told = len(form.node.input) > 2 and form.node.input[2]
    training = form.value(2)
    if told and (training is None or training.any()):
        raise ValueError("its Dropout is in training: export the model in evaluation mode")
    if form.has(1):
        data, mask = form.node.input[0], form.node.output[1]
        form.write("Identity", data, name=form.node.output[0])
        form.write("Expand", form.constant(np.array(True)), form.write("Shape", data), name=mask)


def _is_inf(form: Form) -> None:
    above, below = (form.attribute(f"detect_{side}", 1) for side in ("positive", "negative"))
    if above and below:
        return
    dtype = helper.tensor_dtype_to_np_dtype(form.kind(0) or TensorProto.FLOAT)
    (data,), (found,) = form.node.input, form.node.output
    if not above and not below:
        raise ValueError("its IsInf looks for neither side")
    infinite = form.constant(np.array(np.inf if above else -np.inf, dtype))
    form.write("Equal", data, infinite, name=found)


def _transposed_convolution(form: Form) -> None:
    """Sizes of the output as paddings."""
    wanted, sizes, kernel = form.attribute("output_shape", None), form.sizes(0), form.sizes(1)
    if not wanted or sizes is None or kernel is None:
        return
    axes = range(len(sizes) - 2)
    ones, wanted = [1] * len(axes), wanted[-len(axes) :]
    strides, dilations = form.attribute("strides", ones), form.attribute("dilations", ones)
    more = form.attribute("output_padding", [0 for _ in axes])
    whole = [strides[a] * (sizes[a + 2] - 1) + more[a] + (kernel[a + 2] - 1) * dilations[a] + 1 for a in axes]
    cut = [size - asked for size, asked in zip(whole, wanted, strict=True)]
    upper = form.attribute("auto_pad", b"NOTSET") == b"SAME_UPPER"
    before = [each // 2 if upper else each - each // 2 for each in cut]
    after = [each - first for each, first in zip(cut, before, strict=True)]
    if min(cut) < 0:  # a margin of zeros behind what is computed
        more = [given - min(0, each) for given, each in zip(more, cut, strict=True)]
        before, after = ([max(0, each) for each in side] for side in (before, after))
    form.again(output_shape=None, auto_pad=None, pads=[*before, *after], output_padding=more)


def _power(form: Form) -> None:
    """Exponents of the base's type; powers of integers by way of real numbers."""
    base, exponent = form.kind(0), form.kind(1)
    if not base or not exponent or (base == exponent and base not in _WHOLE):
        return
    computed = TensorProto.DOUBLE if base in _WHOLE else base
    given = [form.write("Cast", name, to=computed) for name in form.node.input]
    if base in _WHOLE:
        power = form.write("Pow", *given)
        form.write("Cast", power, name=form.node.output[0], to=base)
    else:
        form.write("Pow", *given, name=form.node.output[0])


def _length(form: Form) -> None:
    """LpNormalization: numbers over the length of their row."""
    (data,), axis, order = form.node.input, form.attribute("axis", -1), form.attribute("p", 2)
    squared = form.write("Mul", data, data) if order == 2 else form.write("Abs", data)
    total = form.write("ReduceSum", squared, form.constant(np.array([axis], "int64")), keepdims=1)
    length = form.write("Sqrt", total) if order == 2 else total
    dtype = helper.tensor_dtype_to_np_dtype(form.kind(0) or TensorProto.FLOAT)
    least = form.constant(np.finfo(dtype).tiny)  # a row of zeros has no length, and remains
    form.write("Div", data, form.write("Max", length, least), name=form.node.output[0])


def _one_hot(form: Form) -> None:
    """A comparison with all places; negative ones count from the end."""
    depth, sizes = form.value(1), form.sizes(0)
    if depth is None or sizes is None:
        raise ValueError("the depth of its OneHot is not constant")
    count, axis = int(np.ravel(depth)[0]), form.attribute("axis", -1) % (len(sizes) + 1)
    shape = [1] * (len(sizes) + 1)
    shape[axis] = count
    whole = form.write("Cast", form.node.input[0], to=TensorProto.INT64)
    wide = form.write("Unsqueeze", whole, form.constant(np.array([axis], "int64")))
    places = np.arange(count, dtype="int64").reshape(shape)
    here = form.write("Equal", wide, form.constant(places))
    from_the_end = form.write("Equal", wide, form.constant(places - count))
    values = form.value(2)
    if values is None:
        off, on = (
            form.write("Gather", form.node.input[2], form.constant(np.array(at, "int64"))) for at in (0, 1)
        )
    else:
        off, on = (form.constant(values[at]) for at in (0, 1))
    form.write("Where", form.write("Or", here, from_the_end), on, off, name=form.node.output[0])


def _resize(form: Form) -> None:
    """Axis by axis a product with what ONNX's reference makes of the identity, where TVM has no such form."""
    sizes = form.sizes(0)
    if sizes is None or form.kind(0) != TensorProto.FLOAT or _is_plain_resize(form, sizes):
        return
    if form.attribute("keep_aspect_ratio_policy", b"stretch") != b"stretch":
        raise ValueError("its Resize keeps the aspect ratio: export it with sizes alone")
    scales, wanted = form.value(2), form.value(3)
    asked = scales if scales is not None and scales.size else wanted
    if asked is None or form.attribute("coordinate_transformation_mode", b"") == b"tf_crop_and_resize":
        raise ValueError("the sizes of its Resize are not constant, or it crops")
    axes = [axis % len(sizes) for axis in form.attribute("axes", range(len(sizes)))]
    changed, data = _changed(form, sizes, axes, asked), form.node.input[0]
    for axis, matrix in changed:
        data = _along(form, data, axis, len(sizes), matrix)
    form.write("Identity", data, name=form.node.output[0])


def _changed(form: Form, sizes: Sequence[int], axes: Sequence[int], asked: Any) -> list[tuple[int, Any]]:
    """Axes whose size changes, with the weights of every old place in every new one."""
    found = []
    alone = Form(form.node, {}, {}, form._opset)
    for at, axis in enumerate(axes):
        same = asked[at] == (1 if asked.dtype.kind == "f" else sizes[axis])
        if same:
            continue
        one = NodeProto()
        one.CopyFrom(form.node)
        del one.attribute[:]
        one.attribute.extend(each for each in form.node.attribute if each.name != "axes")
        alone.node = one
        both = np.array([asked[at], 1 if asked.dtype.kind == "f" else sizes[axis]], asked.dtype)
        empty = None
        given = (both, empty) if asked.dtype.kind == "f" else (empty, both)
        matrix = alone.reference(np.eye(sizes[axis], dtype="float32"), None, *given)
        found.append((axis, np.asarray(matrix, "float32")))
    return found


def _along(form: Form, data: str, axis: int, ndim: int, matrix: Any) -> str:
    if axis == ndim - 1:
        return form.write("MatMul", data, form.constant(np.ascontiguousarray(matrix.T)))
    if axis == ndim - 2:
        return form.write("MatMul", form.constant(matrix), data)
    order = [at for at in range(ndim) if at != axis] + [axis]
    last = form.write("Transpose", data, perm=order)
    product = form.write("MatMul", last, form.constant(np.ascontiguousarray(matrix.T)))
    return form.write("Transpose", product, perm=[order.index(at) for at in range(ndim)])


def _is_plain_resize(form: Form, sizes: Sequence[int]) -> bool:
    """Whether TVM computes it as ONNX does."""
    mode, where = (
        form.attribute("mode", b"nearest"),
        form.attribute("coordinate_transformation_mode", b"half_pixel"),
    )
    odd = (
        form.attribute("axes", None) or form.attribute("antialias", 0) or form.attribute("exclude_outside", 0)
    )
    kept = form.attribute("keep_aspect_ratio_policy", b"stretch") != b"stretch"
    if odd or kept or where.decode() not in (*_RESIZED, "tf_crop_and_resize"):
        return False
    scales = form.value(2)
    if scales is None or not scales.size or mode == b"nearest":
        return mode != b"cubic" or form.value(3) is None
    whole = [size * scale for size, scale in zip(sizes, scales, strict=True)]
    return mode == b"linear" and all(abs(each - round(each)) < 1e-3 for each in whole) and min(whole) > 1


def _limited(form: Form) -> None:
    """NonMaxSuppression: TVM reads a limit that it does not know as none at all."""
    told = [at for at, name in enumerate(form.node.input) if at > 1 and name]
    if any(form.value(at) is None for at in told):
        raise ValueError("the limits of its NonMaxSuppression are not constant")


def _pooled_regions(form: Form) -> None:
    if form.attribute("mode", b"avg") != b"avg":
        raise ValueError("its RoiAlign takes the largest number: export it with mode=avg")


def _to_depth(form: Form) -> None:
    if form.attribute("mode", b"DCR") != b"DCR":
        raise ValueError("its SpaceToDepth goes column by column: export it with mode=DCR")


_RULES: Mapping[str, Callable[[Form], None]] = {
    "BatchNormalization": _batch_norm,
    "ConvTranspose": _transposed_convolution,
    "Dropout": _dropout,
    "IsInf": _is_inf,
    "LpNormalization": _length,
    "NonMaxSuppression": _limited,
    "OneHot": _one_hot,
    "Pow": _power,
    "Resize": _resize,
    "RoiAlign": _pooled_regions,
    "SpaceToDepth": _to_depth,
}
