"""The example networks are valid, static, and the same for the same seed."""

import pytest
from onnx import ModelProto, TensorProto, ValueInfoProto, checker, shape_inference

from zoo import MODELS

SHAPES = {
    "mlp": ((64, 784), (64, 10)),
    "resnet18": ((1, 3, 224, 224), (1, 1000)),
    "mobilenetv2": ((1, 3, 224, 224), (1, 1000)),
    "bert-small": ((1, 128), (1, 128, 256)),
}


@pytest.fixture(scope="module", params=MODELS)
def named_model(request: pytest.FixtureRequest) -> tuple[str, ModelProto]:
    return request.param, MODELS[request.param](0)


def dims(value: ValueInfoProto) -> tuple[int, ...]:
    return tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)


def test_passes_the_onnx_checker(named_model: tuple[str, ModelProto]) -> None:
    checker.check_model(named_model[1], full_check=True)


def test_shapes_are_static(named_model: tuple[str, ModelProto]) -> None:
    name, model = named_model
    graph = shape_inference.infer_shapes(model, strict_mode=True, data_prop=True).graph
    assert (dims(graph.input[0]), dims(graph.output[0])) == SHAPES[name]
    assert all(all(dims(value)) for value in graph.value_info)


def test_inputs_are_floats_but_for_token_ids(named_model: tuple[str, ModelProto]) -> None:
    name, model = named_model
    expected = TensorProto.INT64 if name == "bert-small" else TensorProto.FLOAT
    assert [value.type.tensor_type.elem_type for value in model.graph.input] == [expected]


def test_same_seed_gives_the_same_bytes(named_model: tuple[str, ModelProto]) -> None:
    name, model = named_model
    again = MODELS[name](0)
    assert again.SerializeToString(deterministic=True) == model.SerializeToString(deterministic=True)


def test_another_seed_gives_other_weights() -> None:
    assert MODELS["mlp"](0) != MODELS["mlp"](1)
