"""Compute at compile time what an ONNX graph derives from constants and shapes alone.

This includes sizes, masks, branches and loops. TVM's importer needs sizes as constants, but
exporters write them as arithmetic on tensor shapes. A single walk over the nodes infers
each node's outputs from what is known about its inputs.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto, defs, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.shape_inference import InferenceError, infer_node_outputs

from mallorn.graphc.onnx import inline_functions, sequences_to_tensors, unroll_loops
from mallorn.graphc.onnx.read_with_weights_on_disk import read_tensor

# Larger results are computed at run time, so that masks and repeats do not bloat the file.
FOLDED_BYTES = 1 << 20
# Shape inference reads values with at most this number of elements.
SIZES = 1 << 10
# Operators never folded: their results are random, or later passes need to see quantisation.
_KEPT = frozenset(
    ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial")
) | frozenset(("Dropout", "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"))
_LEARNED = "ai.onnx.ml"  # ONNX's domain of classical models
CONTRIB = "com.microsoft"  # onnxruntime's own operators
_SIZES_OF = {"FusedConv": "Conv", "FusedGemm": "Gemm"}
_NEGATIVE_AXES = 11  # the opset from which ONNX allows them everywhere
# Operators whose sizes onnxruntime and ONNX's shape inference check alike.
_STRICT = frozenset(("Add", "Concat", "GRU", "LSTM", "MatMul", "Mul", "RNN", "Squeeze", "Sub"))
_REAL = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE)
# Result sizes depend on the values, but are bounded by the number of values and dimensions.
_COUNTED = frozenset(("NonZero", "Unique", "Compress"))


def fold(model: ModelProto, shapes: Mapping[str, Sequence[int]]) -> ModelProto:
    """Return the model without unused nodes; nodes of known results become constants.

    Inputs and outputs keep their order. `shapes` binds free dimensions of inputs to sizes.
    """
    return fold_with_types(model, shapes)[0]


def fold_with_types(
    model: ModelProto, shapes: Mapping[str, Sequence[int]]
) -> tuple[ModelProto, Mapping[str, TypeProto]]:
    """Fold the model; return it, and the types of its tensors that are known, by name."""
    walk = Folding(model, shapes)
    walk.nodes(model.graph.node)
    return walk.model(), walk.types


class Folding:
    """Walks a graph; collects values and types that are known, and nodes to keep."""

    def __init__(self, model: ModelProto, shapes: Mapping[str, Sequence[int]]) -> None:
        self._model = model
        self.opset: int = inline_functions.opset_of(model)
        self.types: dict[str, TypeProto] = {}  # of values, as far as they are known
        self._tensors: dict[str, TensorProto] = {}
        self._values: dict[str, Any] = {}
        self.kept: list[NodeProto] = []  # nodes for run time
        self.sequences: dict[str, list[str]] = {}  # tensors' names, by sequence
        self.unrolled = 0
        self.impossible_count = 0  # nodes that onnxruntime refuses to run with these input sizes
        input_types = {value.name: value.type for value in model.graph.input}
        bound_shapes = {name: shape for name, shape in shapes.items() if name in input_types}
        self.types |= input_types
        for name, shape in bound_shapes.items():
            kind = input_types[name].tensor_type.elem_type
            self.types[name] = helper.make_tensor_type_proto(kind, shape)
        self.constants(model.graph.initializer)
        # The sizes that a file declares for inner values hold for its own input shapes only.
        is_resized = any(
            dim.dim_value not in (0, size)
            for name, shape in bound_shapes.items()
            for dim, size in zip(input_types[name].tensor_type.shape.dim, shape, strict=False)
        )
        declared = () if is_resized else model.graph.value_info
        self._declared = {value.name: value.type for value in declared if sizes_of(value.type) is not None}

    def constants(self, tensors: Iterable[TensorProto]) -> None:
        """Add constant tensors to the known values, by name."""
        for tensor in tensors:
            self._tensors[tensor.name] = tensor
            self.types[tensor.name] = helper.make_tensor_type_proto(tensor.data_type, tensor.dims)

    def nodes(self, nodes: Iterable[NodeProto]) -> None:
        for node in nodes:
            self.node(node)

    def node(self, node: NodeProto) -> None:
        """Compute the node's results if its inputs are known, else keep it for run time."""
        if node.op_type in unroll_loops.KINDS and unroll_loops.unroll(self, node):
            return
        if sequences_to_tensors.process_sequence_operator(self, node):
            return
        self._append_sequence_constructs(unroll_loops.names_read(node))
        types = self.infer_types(node)
        results = self._compute(node, types)
        if results is None:
            self.types.update({name: kind for name, kind in types.items() if name})
            self.kept.append(node)
        else:
            for name, value in zip(node.output, results, strict=False):
                self.set_value(name, value)

    def _append_sequence_constructs(self, names: Iterable[str]) -> None:
        """Add nodes that make these sequences, for readers that need a whole sequence."""
        for name in [name for name in names if name in self.sequences]:
            tensors = list(self.sequences.pop(name))
            operator = "SequenceConstruct" if tensors else "SequenceEmpty"
            self.kept.append(helper.make_node(operator, tensors, [name]))

    def set_value(self, name: str, value: Any) -> None:
        self.constants([numpy_helper.from_array(np.asarray(value), name)])
        self._values[name] = np.asarray(value)

    def value(self, name: str) -> Any | None:
        """Return the array of a name if it is a constant of at most FOLDED_BYTES, else None."""
        if name not in self._values and name in self._tensors:
            tensor = self._tensors[name]
            if _bytes_of(self.types[name]) <= FOLDED_BYTES and tensor.data_type != TensorProto.STRING:
                self._values[name] = read_tensor(tensor)
        return self._values.get(name)

    def size(self, name: str, axis: int) -> int | None:
        sizes = sizes_of(self.types.get(name))
        return sizes[axis] if sizes is not None and -len(sizes) <= axis < len(sizes) else None

    def typed_sizes(self, name: str) -> tuple[int, tuple[int, ...]] | None:
        """Return a value's element type and sizes; None unless all are known."""
        sizes = sizes_of(self.types.get(name))
        return None if sizes is None else (self.types[name].tensor_type.elem_type, sizes)

    def divides_integers(self, node: NodeProto) -> bool:
        """Return whether a node divides by integers that may be 0: that stops a program."""
        if node.op_type not in ("Div", "Mod") or self.value(node.input[1]) is not None:
            return False
        kind = self.typed_sizes(node.input[1])
        return kind is None or kind[0] not in _REAL

    def model(self) -> ModelProto:
        """Build the model from the kept nodes that its outputs need."""
        needed_names = {value.name for value in self._model.graph.output}
        self._append_sequence_constructs(needed_names)
        nodes = []
        for node in reversed(self.kept):
            if not needed_names.isdisjoint(node.output):
                nodes.append(node)
                needed_names.update(unroll_loops.names_read(node))
        result: ModelProto = _copy_without_fields(self._model, "graph")
        graph = _copy_without_fields(self._model.graph, "node", "initializer", "input", "value_info")
        graph.node.extend(reversed(nodes))
        # Old files list weights as inputs, too. One that no node needs would become an input.
        weights = {tensor.name for tensor in self._model.graph.initializer}
        graph.input.extend(value for value in self._model.graph.input if value.name not in weights)
        graph.initializer.extend(tensor for name, tensor in self._tensors.items() if name in needed_names)
        # The known types of inner values, which ONNX's inference may not find again.
        results = {value.name for value in self._model.graph.output}
        for name in (name for node in nodes for name in node.output):
            kind = self.types.get(name)
            if name not in results and sizes_of(kind) is not None:
                graph.value_info.append(ValueInfoProto(name=name, type=kind))
        result.graph.CopyFrom(graph)
        result.ir_version = max(result.ir_version, 4)  # before, every constant was an input
        return result

    def infer_types(self, node: NodeProto) -> dict[str, TypeProto]:
        declared = {name: self._declared[name] for name in node.output if name in self._declared}
        if node.domain == CONTRIB and node.op_type in _SIZES_OF:
            node = _without_activation(node)
        is_learned = node.domain == _LEARNED
        if node.domain not in inline_functions.DOMAINS and not is_learned:
            return infer_result_types(node, [self.typed_sizes(name) for name in node.input]) | declared
        if any(name not in self.types for name in node.input if name):
            return declared
        data = {
            name: self._tensors[name]
            for name in node.input
            if name in self._tensors and prod(self._tensors[name].dims) <= SIZES
        }
        types = {name: self.types[name] for name in node.input if name}
        axes = [axis for a in node.attribute if a.name in ("axis", "axes") for axis in (a.i, *a.ints)]
        # onnxruntime takes negative axes in older opsets, too.
        opset = max(self.opset, _NEGATIVE_AXES) if min(axes, default=0) < 0 else self.opset
        versions = {entry.domain: entry.version for entry in self._model.opset_import} | {"": opset}
        imports = [helper.make_opsetid(domain, version) for domain, version in versions.items()]
        domain = _LEARNED if is_learned else ""
        if is_learned and node.op_type == "LabelEncoder" and versions[domain] == 1:  # ONNX infers no sizes
            if typed := self.typed_sizes(node.input[0]):
                kind = TensorProto.INT64 if typed[0] == TensorProto.STRING else TensorProto.STRING
                return {node.output[0]: helper.make_tensor_type_proto(kind, typed[1])}
            return declared
        try:
            schema = defs.get_schema(node.op_type, versions[domain], domain)
            inferred_types = infer_node_outputs(schema, node, types, data, None, imports)
        except onnx.checker.ValidationError as error:
            if "inconsistent type" not in str(error):
                return declared
            refusal = ValueError(str(error))
            refusal.add_note(f"{node.op_type} (node {node.name!r})" if node.name else node.op_type)
            raise refusal from None
        except InferenceError:
            self.impossible_count += node.op_type in _STRICT
            return declared
        except Exception:  # ONNX raises many error classes for malformed nodes; TVM may accept them
            return declared
        return {name: kind for name, kind in inferred_types.items() if kind.tensor_type.HasField("shape")} | {
            name: kind for name, kind in declared.items() if sizes_of(inferred_types.get(name)) is None
        }

    def _compute(self, node: NodeProto, types: Mapping[str, TypeProto]) -> list[Any] | None:
        """Evaluate a node of known inputs, or a Shape or Size; None if it is not folded."""
        if (
            node.domain not in inline_functions.DOMAINS
            or node.op_type in _KEPT
            or any(unroll_loops.inner_graphs(node))
        ):
            return None
        if node.op_type in ("Shape", "Size"):
            sizes = sizes_of(self.types.get(node.input[0]))
            if sizes is None:
                return None
            if node.op_type == "Size":
                return [np.array(prod(sizes), "int64")]
            ends = {attribute.name: attribute.i for attribute in node.attribute}
            return [np.array(sizes[ends.get("start", 0) : ends.get("end", len(sizes))], "int64")]
        names = [name for name in node.output if name]
        total = sum(_bytes_of(types.get(name)) for name in names)
        inputs = {name: self.value(name) for name in node.input if name}
        if any(value is None for value in inputs.values()):
            return None
        if total > FOLDED_BYTES and not (node.op_type in _COUNTED and len(inputs) == 1):
            return None
        function = helper.make_function(
            "", "one", list(inputs), list(node.output), [node], [helper.make_opsetid("", self.opset)]
        )
        try:
            with np.errstate(all="ignore"):
                results = list(ReferenceEvaluator(function).run(None, inputs, {}))
        except Exception:  # what the reference cannot evaluate is computed at run time
            return None
        if any(not isinstance(value, np.ndarray | np.generic) for value in results):
            return None
        return results if all(np.asarray(value).dtype.kind not in "OSU" for value in results) else None


def sizes_of(kind: TypeProto | None) -> tuple[int, ...] | None:
    """Return the sizes of a tensor type; None unless all are known."""
    if kind is None or not kind.HasField("tensor_type") or not kind.tensor_type.HasField("shape"):
        return None
    dims = kind.tensor_type.shape.dim
    if not all(dim.HasField("dim_value") for dim in dims):
        return None
    return tuple(dim.dim_value for dim in dims)


def _bytes_of(kind: TypeProto | None) -> float:
    sizes = sizes_of(kind)
    if sizes is None or kind is None or not kind.tensor_type.elem_type:
        return float("inf")
    return prod(sizes) * helper.tensor_dtype_to_np_dtype(kind.tensor_type.elem_type).itemsize


def _copy_without_fields(message: Any, *names: str) -> Any:
    """Copy a protobuf message without some fields, never reading their large content."""
    result = type(message)()
    for field, value in message.ListFields():
        if field.name in names:
            continue
        if isinstance(value, int | float | str | bytes):
            setattr(result, field.name, value)
        elif hasattr(value, "CopyFrom"):
            getattr(result, field.name).CopyFrom(value)
        else:
            getattr(result, field.name).extend(value)
    return result


Sizes = tuple[int, ...]
Typed = tuple[int, Sizes]  # element type and sizes
Given = Sequence[Typed | None]
Attributes = Mapping[str, Any]


def _without_activation(node: NodeProto) -> NodeProto:
    """Return ONNX's operator whose results have the types of onnxruntime's fused one."""
    result = NodeProto(op_type=_SIZES_OF[node.op_type], input=node.input, output=node.output, name=node.name)
    kept = [attribute for attribute in node.attribute if not attribute.name.startswith("activation")]
    result.attribute.extend(kept)
    return result


def infer_result_types(node: NodeProto, input_types: Given) -> dict[str, TypeProto]:
    """Return the types of a node's results by name, if its input types determine them."""
    rule = _RULES.get(node.op_type) if node.domain == CONTRIB else None
    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    results = () if rule is None else rule(attributes, input_types)
    return {
        name: helper.make_tensor_type_proto(*typed)
        for name, typed in zip(node.output, results, strict=False)
        if name and typed
    }


def _matmul_nbits(attrs: Attributes, inputs: Given) -> Given:
    if not inputs[0] or "N" not in attrs:
        return ()
    kind, sizes = inputs[0]
    return [(kind, (*sizes[:-1], attrs["N"]))]


def _quantized_lstm(_: Attributes, inputs: Given) -> Given:
    data, states = inputs[0], inputs[2]
    if not data or not states:
        return ()
    (kind, (steps, batch, *_rest)), (directions, units, *_rest) = data, states[1]
    last = kind, (directions, batch, units)
    return [(kind, (steps, directions, batch, units)), last, last]


def _gather(attrs: Attributes, inputs: Given) -> Given:
    """Infer GatherBlockQuantized: rows of the decoded table, in the type of its scales."""
    table_type, index_type, scale_type = (*inputs, None, None, None)[:3]
    if not (table_type and index_type and scale_type):
        return ()
    (_, table), (_, places), (kind, scales) = table_type, index_type, scale_type
    blocks, axis = attrs.get("quantize_axis", 1) % len(table), attrs.get("gather_axis", 0) % len(table)
    sizes = list(scales)
    sizes[blocks] *= attrs.get("block_size", 128)
    return [(kind, (*sizes[:axis], *places, *sizes[axis + 1 :]))]


def _infer_like_first_input(_: Attributes, inputs: Given) -> Given:
    """Give the first and the optional fourth result (a sum) the type of the first input."""
    return [inputs[0], None, None, inputs[0]]


def _attention(attrs: Attributes, inputs: Given) -> Given:
    """Infer MultiHeadAttention: one row per query, and caches extended by the new rows."""
    heads, (query, keys, values) = int(attrs.get("num_heads", 0)), (*inputs, None, None, None)[:3]
    if not (query and keys and values and heads):
        return ()
    caches: list[Typed] = []  # [batch, heads, rows, numbers], with the rows of the past
    for (kind, sizes), past in zip((keys, values), (*inputs, *[None] * 8)[6:8], strict=True):
        if len(sizes) != 4:
            batch, rows, width = sizes
            sizes = (batch, heads, rows, width // heads)
        past_rows = past[1][2] if past else 0
        caches.append((kind, (*sizes[:2], sizes[2] + past_rows, sizes[3])))
    kind, sizes = query
    return [(kind, (*sizes[:2], heads * caches[1][1][-1])), *caches]


def _infer_packed_attention(attrs: Attributes, inputs: Given) -> Given:
    """Infer Attention, with one input for queries, keys and values, and one joint cache."""
    data, weights, past = inputs[0], inputs[1], (*inputs, *[None] * 5)[4]
    if not (data and weights):
        return ()
    (kind, (*rows, _)), heads = data, int(attrs["num_heads"])
    query, *_, values = attrs.get("qkv_hidden_sizes") or [weights[1][-1] // 3] * 3
    past_rows = past[1][3] if past else 0
    cache = kind, (2, rows[0], heads, rows[1] + past_rows, query // heads)
    return [(kind, (*rows, values)), cache]


def _embedding(_: Attributes, inputs: Given) -> Given:
    """Infer EmbedLayerNormalization: normed rows, counts of masks, rows before the norm."""
    places, table = inputs[0], inputs[2]
    if not (places and table):
        return ()
    rows = table[0], (*places[1], table[1][-1])
    return [rows, (TensorProto.INT32, places[1][:1]), rows]


def _fused_matmul(attrs: Attributes, inputs: Given) -> Given:
    first, second = inputs[:2]
    if not first or not second or attrs.get("transBatchA") or attrs.get("transBatchB"):
        return ()
    (kind, left), (_, right) = first, second
    if len(right) < 2 or not left:
        return ()
    rows, columns = left[-1 if attrs.get("transA") else -2 :], right[-2 if attrs.get("transB") else -1]
    rows = rows[:1] if len(left) > 1 else ()  # a vector is a row, which the result lacks
    return [(kind, (*np.broadcast_shapes(left[:-2], right[:-2]), *rows, columns))]


_RULES: Mapping[str, Callable[[Attributes, Given], Given]] = {
    "Attention": _infer_packed_attention,
    "BiasGelu": _infer_like_first_input,
    "DynamicQuantizeLSTM": _quantized_lstm,
    "EmbedLayerNormalization": _embedding,
    "FastGelu": _infer_like_first_input,
    "FusedMatMul": _fused_matmul,
    "GatherBlockQuantized": _gather,
    "Gelu": _infer_like_first_input,
    "MatMulNBits": _matmul_nbits,
    "MultiHeadAttention": _attention,
    "QuickGelu": _infer_like_first_input,
    "SimplifiedLayerNormalization": _infer_like_first_input,
    "SkipLayerNormalization": _infer_like_first_input,
    "SkipSimplifiedLayerNormalization": _infer_like_first_input,
}
