"""A Gather of known sizes becomes one operator; its indices may count from the end, as ONNX has it."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, helper

from mallorn.graphc.export.compile_network import import_graph
from mallorn.workers.tvm.network.run_recipe_passes import count_operators
from tests.fixtures.onnx_network import onnx_network
from tests.unit.graphc.networks import run

X = np.random.default_rng(0).standard_normal((4, 5)).astype("float32")


def gathered(indices: Any, axis: int, *, known: bool) -> ModelProto:
    """Takes from x; the indices are a constant or an input."""
    node = helper.make_node("Gather", ["x", "i"], ["y"], axis=axis)
    if known:
        return onnx_network([node], {"x": X.shape}, {"y": None}, i=indices)
    return onnx_network([node], {"x": X.shape, "i": indices}, {"y": None})


@pytest.mark.pairwise
@pytest.mark.parametrize("known", [True, False], ids=["constant", "given"])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("indices", [[0, -1, 2], [[-4, 3]], 1, -1])
@pytest.mark.parametrize("kind", ["int32", "int64"])
def test_it_takes_what_onnx_takes(kind: str, indices: Any, axis: int, known: bool) -> None:
    given = np.array(indices, kind)
    mod = import_graph(gathered(given, axis, known=known), {}, None)
    assert "shape_of" not in count_operators(mod)
    assert not known or count_operators(mod) == {"take": 1}
    found = run(mod, *([X] if known else [X, given]))
    np.testing.assert_array_equal(found, np.take(X, given, axis))


def test_a_size_that_is_free_is_asked_for_at_run_time(tmp_path: Path) -> None:
    model = gathered(np.array([-1]), 0, known=True)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "rows"
    onnx.save(model, str(tmp_path / "m.onnx"))
    assert "shape_of" in count_operators(import_graph(model, {}, None))
