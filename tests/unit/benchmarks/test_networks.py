"""The networks to measure on, whole and of one operator: valid, static, the same for the same seed."""

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, checker, shape_inference

from benchmarks.networks.ablated import ABLATED
from benchmarks.networks.development import DEVELOPMENT
from benchmarks.networks.held_out import HELD_OUT
from benchmarks.networks.odd import odd
from benchmarks.operators.models import OPERATORS, model_of

NETWORKS = DEVELOPMENT | HELD_OUT | ABLATED | {"odd": odd}


@pytest.fixture(scope="module", params=NETWORKS)
def named_model(request: pytest.FixtureRequest) -> tuple[str, ModelProto]:
    return request.param, NETWORKS[request.param](0)


def test_valid_and_static(named_model: tuple[str, ModelProto]) -> None:
    checker.check_model(named_model[1], full_check=True)
    graph = shape_inference.infer_shapes(named_model[1], strict_mode=True, data_prop=True).graph
    values = [*graph.input, *graph.output, *graph.value_info]
    assert all(dim.dim_value for value in values for dim in value.type.tensor_type.shape.dim)


def test_outputs_neither_vanish_nor_explode(named_model: tuple[str, ModelProto]) -> None:
    session = onnxruntime.InferenceSession(named_model[1].SerializeToString())
    rng = np.random.default_rng(1)
    feeds = {
        value.name: rng.standard_normal(value.shape, np.float32)
        if value.type == "tensor(float)"
        else rng.integers(0, 100, value.shape)
        for value in session.get_inputs()
    }
    (output,) = session.run(None, feeds)
    assert 0.1 < output.std() < 10
    assert np.abs(output).max() < 100


def test_same_seed_gives_the_same_bytes(named_model: tuple[str, ModelProto]) -> None:
    name, model = named_model
    again = NETWORKS[name](0)
    assert again.SerializeToString(deterministic=True) == model.SerializeToString(deterministic=True)


def test_no_network_is_looked_at_and_held_out() -> None:
    assert not DEVELOPMENT.keys() & HELD_OUT.keys()


@pytest.mark.parametrize("name", OPERATORS)
def test_every_operator_is_a_network_that_runs(name: str) -> None:
    model, shape = model_of(name)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (result,) = session.run(None, {"x": np.ones(shape, np.float32)})
    assert np.isfinite(result).all()
