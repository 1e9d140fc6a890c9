"""Broken small models, as disks and tools produce them; the number determines the model."""

import random
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, defs, helper, numpy_helper

Change = Callable[[random.Random, ModelProto], None]
ABSURD: Final = (0, -1, -5, 3, 1 << 20, 1 << 31, 1 << 40, (1 << 63) - 1, -(1 << 63))
OPERATORS: Final = tuple(sorted({schema.name for schema in defs.get_all_schemas() if not schema.domain}))


def mutant(number: int) -> bytes:
    """Return a model's bytes after up to three changes; 30 % have damaged bytes, too."""
    rng = random.Random(number)
    model = rng.choice(MODELS)()
    for _ in range(rng.randint(0, 3)):
        rng.choice(CHANGES)(rng, model)
    data = model.SerializeToString()
    return _damage(rng, data) if rng.random() < 0.3 else data


def _model(
    nodes: Sequence[NodeProto],
    shape: Sequence[int],
    functions: Any = (),
    **weights: Any,
) -> ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [_value("x", shape)],
        [_value("y", None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()],
    )
    opsets = [helper.make_opsetid("", 17), *(helper.make_opsetid(f.domain, 1) for f in functions)]
    return helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=9)


def _value(name: str, shape: Any, kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def _floats(*shape: int) -> Any:
    return np.ones(shape, "float32")


def perceptron() -> ModelProto:
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"], transB=1),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "v"], ["y"]),
    ]
    return _model(nodes, (4, 8), w=_floats(16, 8), b=_floats(16), v=_floats(16, 3))


def convolutions() -> ModelProto:
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2], group=2),
        helper.make_node("BatchNormalization", ["c", "b", "b", "b", "b"], ["n"]),
        helper.make_node("MaxPool", ["n"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Resize", ["p", "", "scales"], ["z"], mode="nearest"),
        helper.make_node("Flatten", ["z"], ["y"]),
    ]
    return _model(nodes, (1, 4, 8, 8), w=_floats(8, 2, 3, 3), b=_floats(8), scales=_floats(4))


def computed_sizes() -> ModelProto:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Concat", ["n", "rest"], ["to"], axis=0),
        helper.make_node("Reshape", ["x", "to"], ["f"]),
        helper.make_node("Softmax", ["f"], ["y"], axis=-1),
    ]
    return _model(nodes, (2, 3, 4), zero=np.array([0]), rest=np.array([-1]))


def counted_loop() -> ModelProto:
    body = helper.make_graph(
        [helper.make_node("Identity", ["on"], ["still"]), helper.make_node("Add", ["at", "at"], ["next"])],
        "body",
        [_value("i", [], TensorProto.INT64), _value("on", [], TensorProto.BOOL), _value("at", None)],
        [_value("still", [], TensorProto.BOOL), _value("next", None)],
    )
    then, other = (
        helper.make_graph([helper.make_node(kind, ["l"], ["r"])], kind, [], [_value("r", None)])
        for kind in ("Relu", "Neg")
    )
    nodes = [
        helper.make_node("Loop", ["three", "yes", "x"], ["l"], body=body),
        helper.make_node("If", ["yes"], ["y"], then_branch=then, else_branch=other),
    ]
    return _model(nodes, (2, 3), three=np.int64(3), yes=np.bool_(True))


def functions() -> ModelProto:
    inner = [helper.make_node("Mul", ["a", "a"], ["b"])]
    own = helper.make_function("own", "Square", ["a"], ["b"], inner, [helper.make_opsetid("", 17)])
    nodes = [
        helper.make_node("Square", ["x"], ["q"], domain="own"),
        helper.make_node("ReduceSum", ["q", "axes"], ["y"], keepdims=0),
    ]
    return _model(nodes, (4, 6), [own], axes=np.array([1]))


def recurrent() -> ModelProto:
    node = helper.make_node("LSTM", ["x", "w", "r", "b"], ["y"], hidden_size=4)
    return _model([node], (3, 2, 5), w=_floats(1, 16, 5), r=_floats(1, 16, 4), b=_floats(1, 32))


def quantised() -> ModelProto:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "point"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "point"], ["d"]),
        helper.make_node("MatMul", ["d", "w"], ["m"]),
        helper.make_node("LayerNormalization", ["m", "g"], ["y"], axis=-1),
    ]
    weights = {"scale": np.float32(0.1), "point": np.int8(0), "w": _floats(8, 4), "g": _floats(4)}
    return _model(nodes, (4, 8), **weights)


MODELS: Final = (
    perceptron,
    convolutions,
    computed_sizes,
    counted_loop,
    functions,
    recurrent,
    quantised,
)


def _damage(rng: random.Random, data: bytes) -> bytes:
    content = bytearray(data)
    kind = rng.randrange(4)
    if kind == 0:
        return data[: rng.randrange(len(data))]
    if kind == 1:
        begin = rng.randrange(len(data))
        return bytes(content[:begin] + content[begin : begin + rng.randrange(64)] * 2 + content[begin:])
    for _ in range(rng.randint(1, 8)):
        place = rng.randrange(len(content))
        content[place] = rng.randrange(256) if kind == 2 else content[place] ^ (1 << rng.randrange(8))
    return bytes(content)


def _graph(rng: random.Random, model: ModelProto) -> GraphProto:
    inner = [a.g for node in model.graph.node for a in node.attribute if a.HasField("g")]
    graph: GraphProto = rng.choice([model.graph, model.graph, *inner])
    return graph


def _node(rng: random.Random, model: ModelProto) -> NodeProto:
    nodes: list[NodeProto] = [
        *_graph(rng, model).node,
        *(node for function in model.functions for node in function.node),
    ]
    node: NodeProto = rng.choice(nodes) if nodes else model.graph.node.add(op_type="Relu", output=["y"])
    return node


def _names(model: ModelProto) -> list[str]:
    values = {name for node in model.graph.node for name in (*node.input, *node.output)}
    return sorted({*values, "x", "y", "", "nowhere", "a name\n", "0", "\u00e9" * 300})


def another_operator(rng: random.Random, model: ModelProto) -> None:
    _node(rng, model).op_type = rng.choice(OPERATORS)


def another_input(rng: random.Random, model: ModelProto) -> None:
    node = _node(rng, model)
    if node.input:
        node.input[rng.randrange(len(node.input))] = rng.choice(_names(model))
    else:
        node.input.append(rng.choice(_names(model)))


def more_inputs(rng: random.Random, model: ModelProto) -> None:
    _node(rng, model).input.extend(rng.choices(_names(model), k=rng.randint(1, 9)))


def fewer_inputs(rng: random.Random, model: ModelProto) -> None:
    del _node(rng, model).input[:1]


def another_output(rng: random.Random, model: ModelProto) -> None:
    node = _node(rng, model)
    del node.output[:]
    node.output.extend(rng.choices(_names(model), k=rng.randint(0, 3)))


def another_order(rng: random.Random, model: ModelProto) -> None:
    nodes = list(_graph(rng, model).node)
    rng.shuffle(nodes)
    copies = [NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(copies)


def doubled(rng: random.Random, model: ModelProto) -> None:
    model.graph.node.add().CopyFrom(_node(rng, model))


def lost(rng: random.Random, model: ModelProto) -> None:
    graph = _graph(rng, model)
    parts = rng.choice([graph.node, graph.initializer, graph.input, graph.output])
    if parts:
        del parts[rng.randrange(len(parts))]


def another_size(rng: random.Random, model: ModelProto) -> None:
    values = [*model.graph.input, *model.graph.output]
    dims = [dim for value in values for dim in value.type.tensor_type.shape.dim]
    if dims:
        rng.choice(dims).dim_value = rng.choice(ABSURD)


def another_weight_size(rng: random.Random, model: ModelProto) -> None:
    if model.graph.initializer:
        tensor = rng.choice(model.graph.initializer)
        tensor.dims[:] = rng.choices(ABSURD, k=rng.randint(0, 3))


def another_type(rng: random.Random, model: ModelProto) -> None:
    kind = rng.choice([*TensorProto.DataType.values(), 99])
    if model.graph.initializer and rng.random() < 0.5:
        rng.choice(model.graph.initializer).data_type = kind
    elif model.graph.input:
        model.graph.input[0].type.tensor_type.elem_type = kind


def another_value(rng: random.Random, model: ModelProto) -> None:
    if model.graph.initializer:
        tensor = rng.choice(model.graph.initializer)
        content = np.array(rng.choices(ABSURD, k=max(1, sum(tensor.dims) % 5)), "int64")
        tensor.CopyFrom(numpy_helper.from_array(content, tensor.name))


def data_elsewhere(rng: random.Random, model: ModelProto) -> None:
    if model.graph.initializer:
        tensor = rng.choice(model.graph.initializer)
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=rng.choice(["/etc/hosts", "../x", "model.onnx", ""]))


def absurd_attribute(rng: random.Random, model: ModelProto) -> None:
    node = _node(rng, model)
    schema = [name for s in defs.get_all_schemas() if s.name == node.op_type for name in s.attributes]
    name = rng.choice([*(a.name for a in node.attribute), *schema, "axis"])
    others = [a for a in node.attribute if a.name != name]
    value = rng.choice([rng.choice(ABSURD), rng.choices(ABSURD, k=rng.randint(1, 5)), float("nan"), "words"])
    node.ClearField("attribute")
    node.attribute.extend([*others, helper.make_attribute(name, value)])


def another_version(rng: random.Random, model: ModelProto) -> None:
    model.opset_import[0].version = rng.choice([0, 1, 5, 9, 11, 13, 20, 23, 99, -1])


def calls_itself(_: random.Random, model: ModelProto) -> None:
    node = NodeProto(op_type="Square", domain="own", input=["a"], output=["c"])
    for function in model.functions:
        function.node.add().CopyFrom(node)


def deep(rng: random.Random, model: ModelProto) -> None:
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["r"])], "g", [], [_value("r", None)])
    for _ in range(rng.choice([3, 15, 40])):
        node = helper.make_node("If", ["yes"], ["r"], then_branch=graph, else_branch=graph)
        graph = helper.make_graph([node], "g", [], [_value("r", None)])
        if graph.ByteSize() > 1 << 20:
            break
    model.graph.node.extend(graph.node)


CHANGES: Final[tuple[Change, ...]] = (
    another_operator,
    another_input,
    more_inputs,
    fewer_inputs,
    another_output,
    another_order,
    doubled,
    lost,
    another_size,
    another_weight_size,
    another_type,
    another_value,
    data_elsewhere,
    absurd_attribute,
    absurd_attribute,
    another_version,
    calls_itself,
    deep,
)
