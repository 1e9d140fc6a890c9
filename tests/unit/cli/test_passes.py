"""`mallorn passes`: which passes there are, and what they did on a model."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from onnx import helper

from mallorn.cli import report_graph_passes as passes
from mallorn.core.values.graph_report import RemainingCopy
from mallorn.graphc.phases import PassEntry
from mallorn.workers.interfaces.model_compiler import ModelCompiler, PassReport, RecipeReport
from tests.fixtures.answers import mallorn
from tests.fixtures.onnx_network import saved
from tests.fixtures.workshop import MadeUpGraphs

ENTRY = PassEntry("pad_matmul_to_tiles", "Computes a few rows more.", ("products",), ())
FIRED = PassReport(
    "products", "pad_matmul_to_tiles", 3, 1, {"the sizes of the product can be tiled already": 2}, ""
)
COPIES = [
    RemainingCopy(function="transpose", kind="transpose", required_by="the input", calls=1),
    RemainingCopy(function="transpose1", kind="transpose", required_by="softmax", calls=2),
    RemainingCopy(function="reshape", kind="copy", required_by="the output", calls=1),
]
TARGET = '{"kind": "llvm", "mcpu": "znver4", "num-cores": 2}'


@pytest.fixture
def _answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the process that loads TVM answers."""
    answers: dict[str, Any] = {"list_passes": [ENTRY], "report_passes": RecipeReport([FIRED], COPIES)}

    @contextmanager
    def process(*_: Any, **__: Any) -> Iterator[ModelCompiler]:
        yield MadeUpGraphs(answers)

    monkeypatch.setattr(passes, "tvm_process", process)


@pytest.mark.usefixtures("_answers")
def test_without_a_model_it_lists_the_passes() -> None:
    listed = mallorn("passes", "--json")
    assert [entry["name"] for entry in json.loads(listed.output)] == [ENTRY.name]
    assert ENTRY.purpose in mallorn("passes").output


@pytest.mark.usefixtures("_answers")
def test_it_reports_for_a_model_why_passes_left_calls(tmp_path: Path) -> None:
    relu = helper.make_node("Relu", ["x"], ["y"])
    model = saved(tmp_path / "net.onnx", [relu], {"x": [1, 3]}, {"y": [1, 3]})
    told = mallorn("passes", model, "--target", TARGET, "--dump", tmp_path / "phases")
    assert told.exit_code == 0, told.output
    assert "2 x the sizes of the product can be tiled already" in " ".join(told.output.split())
    assert (tmp_path / "phases").is_dir()
    document = json.loads(mallorn("passes", model, "--target", TARGET, "--json").output)
    assert {kind: len(found) for kind, found in document.items()} == {"passes": 1, "copies": 3}
    assert "left: 3 transposes (2 by softmax, 1 by the input), 1 copy (1 by the output)" in told.stderr
