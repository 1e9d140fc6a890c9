"""What an export runs: passes by name, inputs that repeat."""

from collections.abc import Callable

import numpy as np
import pytest
from onnx import ModelProto

from mallorn.graphc.core.pass_registry import make_pass
from mallorn.graphc.export import compile_network


@pytest.mark.parametrize("name", ["runtime.load_module", "support.cc.create_shared", "os.system"])
def test_a_manifest_can_name_nothing_but_graph_passes(name: str) -> None:
    with pytest.raises(ValueError, match="not a graph pass"):
        make_pass({"pass": name, "args": ["x"]})


def test_inputs_repeat_with_the_seed(build_model: Callable[..., ModelProto]) -> None:
    model = build_model()
    first, again, other = (compile_network.random_inputs(model, {}, {}, seed)["x"] for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert first.shape == (4, 8)


def test_inputs_take_the_bound_shape(build_model: Callable[..., ModelProto]) -> None:
    assert compile_network.random_inputs(build_model(shape=("n", 8)), {"x": [3, 8]}, {})["x"].shape == (3, 8)
