"""Reports say of each graph pass what it matched, where it fired and why it left the rest."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, helper, numpy_helper

from mallorn.core.errors import UnknownName
from mallorn.graphc.phases import pass_table
from mallorn.workers.interfaces.model_compiler import PassReport
from mallorn.workers.tvm.model_compiler_child import report_passes
from tests.unit.graphc.networks import HASWELL

PAD = "pad_matmul_to_tiles"


@pytest.fixture
def model(tmp_path: Path, build_model: Callable[..., ModelProto]) -> str:
    """Two products: rows of the first cannot be tiled, the second's factor is computed."""
    nodes = [
        helper.make_node("MatMul", ["x", "wide"], ["first"]),
        helper.make_node("Transpose", ["first"], ["turned"], perm=[1, 0]),
        helper.make_node("MatMul", ["first", "turned"], ["y"]),
    ]
    made = build_model(nodes, shape=(17, 8))
    made.graph.initializer.append(numpy_helper.from_array(np.ones((8, 32), "float32"), "wide"))
    path = tmp_path / "model.onnx"
    path.write_bytes(made.SerializeToString())
    return str(path)


def report_of(reports: list[PassReport], name: str) -> PassReport:
    (found,) = (report for report in reports if report.name == name)
    return found


def test_a_pass_that_fired_says_what_it_left_and_why(model: str) -> None:
    report = report_of(report_passes(model, HASWELL, "tuned", {}, [], None).passes, PAD)
    assert (report.phase, report.matched, report.fired, report.skipped) == ("products", 2, 1, "")
    assert report.left == {"the second factor of the product is computed": 1}


def test_a_pass_is_left_out_by_name(model: str) -> None:
    report = report_of(report_passes(model, HASWELL, "tuned", {}, [PAD], None).passes, PAD)
    assert (report.fired, report.skipped) == (0, "switched off")


def test_a_name_that_no_pass_has_is_refused_with_those_that_are_known(model: str) -> None:
    with pytest.raises(UnknownName, match=r"unknown pass 'pad_matmul'") as caught:
        report_passes(model, HASWELL, "tuned", {}, [PAD, "pad_matmul"], None)
    assert PAD in caught.value.hint
    assert "relax.transform.FuseOps" in caught.value.hint


def test_the_program_after_each_phase_is_written(model: str, tmp_path: Path) -> None:
    report_passes(model, HASWELL, "tuned", {}, [], str(tmp_path))
    written = {file.name: file.read_text() for file in tmp_path.glob("*.py")}
    assert min(written) == "01-quantized.py"
    assert "whole_matmul" not in written["04-integer-products.py"]
    assert "whole_matmul" in written["07-products.py"]


def test_every_pass_is_listed_with_its_purpose() -> None:
    entries = {entry.name: entry for entry in pass_table()}
    assert PAD in entries
    assert all(entry.purpose.endswith(".") and entry.phases for entry in entries.values())


def test_a_pass_that_follows_another_is_listed_after_it() -> None:
    names = [entry.name for entry in pass_table()]
    assert names[:2] == ["compute_in_integers", "quantize_to_arithmetic"]
