"""Parts of the exported script."""

import ast
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto

from cli.terminal.mistakes import OURS
from workers.finish.export import SCRIPTS
from workers.tvm.templates import compiling


@pytest.mark.parametrize("name", [name for name in SCRIPTS if name.endswith(".py")])
def test_the_scripts_import_nothing_of_ours(name: str) -> None:
    tree = ast.parse(Path(compiling.__file__).with_name(name).read_text())
    named = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    named += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    roots = {name.partition(".")[0] for name in named}
    assert roots.isdisjoint(OURS)
    # onnx brings ml_dtypes and protobuf.
    known = {"tvm", "tvm_ffi", "onnx", "numpy", "ml_dtypes", "google", "onnxruntime"}
    assert roots - set(sys.stdlib_module_names) <= known


@pytest.mark.parametrize("name", ["runtime.load_module", "support.cc.create_shared", "os.system"])
def test_a_manifest_can_name_nothing_but_graph_passes(name: str) -> None:
    with pytest.raises(ValueError, match="not a graph pass"):
        compiling.make_pass({"pass": name, "args": ["x"]})


def test_inputs_repeat_with_the_seed(build_model: Callable[..., ModelProto]) -> None:
    model = build_model()
    first, again, other = (compiling.random_inputs(model, {}, {}, seed)["x"] for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert first.shape == (4, 8)


def test_inputs_take_the_bound_shape(build_model: Callable[..., ModelProto]) -> None:
    assert compiling.random_inputs(build_model(shape=("n", 8)), {"x": [3, 8]}, {})["x"].shape == (3, 8)
