"""Files with something wrong in them end as an answer or as one sentence; nothing hangs, nothing crashes.

`python -m benchmarks.mutants --count 500` tries more of them.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, helper

from benchmarks.mutant_files import MODELS, mutant
from benchmarks.mutants import ending
from mallorn.core.errors import InvalidModel
from mallorn.workers.interfaces.model_compiler import ModelCompiler
from mallorn.workers.tvm.network.import_onnx_to_relax import load_network
from tests.fixtures.onnx_network import onnx_network

FEW, COUNT = 10, 40


@pytest.fixture(scope="module")
def graphs() -> Iterator[ModelCompiler]:
    with ModelCompiler() as child:
        yield child


@pytest.mark.parametrize("numbers", [range(FEW), pytest.param(range(FEW, COUNT), marks=pytest.mark.long)])
def test_what_is_broken_is_refused_in_a_sentence(
    graphs: ModelCompiler, tmp_path: Path, numbers: range
) -> None:
    ends = {number: ending(graphs, mutant(number), tmp_path) for number in numbers}
    assert {how for how, _ in ends.values()} == {"imported", "refused"}, ends
    assert all(said for _, said in ends.values())


def test_the_whole_ones_are_imported(graphs: ModelCompiler, tmp_path: Path) -> None:
    for build in MODELS:
        assert ending(graphs, build().SerializeToString(), tmp_path)[0] == "imported", build.__name__


def test_a_number_says_which_mutant() -> None:
    assert mutant(7) == mutant(7)
    assert len({mutant(number) for number in range(COUNT)}) > COUNT / 2


def told(model: ModelProto, path: Path) -> InvalidModel:
    onnx.save(model, str(path))
    with pytest.raises(InvalidModel) as caught:
        load_network(path)
    assert caught.value.hint
    return caught.value


def model(*nodes: onnx.NodeProto, **weights: object) -> ModelProto:
    return onnx_network(nodes, {"x": (4, 8)}, {"y": None}, **weights)


def test_the_node_that_cannot_be_converted_is_named_without_tvms_conditions(tmp_path: Path) -> None:
    clash = helper.make_node("Reshape", ["x", "to"], ["y"], name="head/Reshape")
    message = told(model(clash, to=np.array([5, 5])), tmp_path / "m.onnx").message
    assert message.startswith("TVM cannot import Reshape (node 'head/Reshape'): ")
    assert "Check failed" not in message


def test_an_operator_that_nobody_knows_is_named_before_anything_else(tmp_path: Path) -> None:
    strange = helper.make_node("Frobnicate", ["x", "nowhere"], ["y"])
    error = told(model(strange), tmp_path / "m.onnx")
    assert error.message == "TVM cannot import these operators: Frobnicate"
    assert "docs/models.md" in error.hint


def test_a_value_that_nobody_makes_is_named_with_its_node(tmp_path: Path) -> None:
    message = told(model(helper.make_node("Relu", ["gone"], ["y"], name="act")), tmp_path / "m.onnx").message
    assert "'gone'" in message
    assert "act" in message
    assert "\n" not in message
