"""A quantised model may be twice as far from its file's steps as onnxruntime's fused operators are."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from benchmarks.networks.quantised import QUANTISED
from mallorn.graphc.export import compile_network
from mallorn.graphc.export.compare_with_onnxruntime import errors_against_onnxruntime, run_onnxruntime
from mallorn.graphc.export.export_checks import Refused, check_error, largest_allowed_error
from mallorn.graphc.export.output_errors import relative_error
from mallorn.workers.tvm import engine_child
from tests.unit.graphc import networks

pytest.importorskip("onnxruntime")
from tests.unit.graphc.test_compute_in_integers import lowered
from tests.unit.graphc.test_import_quantized_operators import (
    NETWORKS,
    QDQ,
    QLINEAR,
    U8,
    quantised,
)
from tests.unit.graphc.test_other_tools import Written

IN_BYTES = [name for name in QUANTISED if name.endswith("int8")]


def inputs_of(path: Path) -> dict[str, Any]:
    return compile_network.random_inputs(onnx.load(path), {}, {}, seed=3)


def computed(path: Path, inputs: dict[str, Any]) -> list[Any]:
    return [networks.run(lowered(path), *inputs.values())]


def assert_close(path: Path) -> None:
    inputs = inputs_of(path)
    error, own_error = errors_against_onnxruntime(str(path), inputs, computed(path, inputs))
    assert error <= largest_allowed_error(path, own_error), own_error


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("form", [QDQ, QLINEAR], ids=["QDQ", "QLinear"])
def test_files_of_onnxruntimes_quantiser_are_close(tmp_path: Path, network: str, form: Any) -> None:
    assert_close(quantised(tmp_path, network, form, U8))


@pytest.mark.parametrize("name", IN_BYTES)
def test_files_of_quantised_operators_are_close(tmp_path: Path, name: str) -> None:
    onnx.save(QUANTISED[name](0), tmp_path / "m.onnx")
    assert_close(tmp_path / "m.onnx")


@pytest.mark.parametrize("data", ["uint8", "int8"])
def test_files_of_other_tools_are_close(tmp_path: Path, data: str) -> None:
    onnx.save(Written(data).residual(), tmp_path / "m.onnx")
    assert_close(tmp_path / "m.onnx")


def test_onnxruntimes_engine_saves_what_the_file_says_and_tells_its_own_error(tmp_path: Path) -> None:
    path, outputs = quantised(tmp_path, "pictures", QDQ, U8), tmp_path / "outputs.npz"
    np.savez(tmp_path / "inputs.npz", **inputs_of(path))
    loaded = engine_child.load_onnxruntime(str(path), str(tmp_path / "inputs.npz"), 1)
    assert engine_child.save_outputs(str(outputs)) == 1
    (truth,), (fused,) = (run_onnxruntime(str(path), inputs_of(path), fused=each) for each in (False, True))
    assert loaded.own_error == relative_error(fused, truth)
    assert np.array_equal(np.load(outputs)["output_0"], truth)


def wider(scale: Any) -> Any:
    return (scale * 1.1).astype(scale.dtype)


def moved(zero: Any) -> Any:
    return (zero + 7).astype(zero.dtype)


@pytest.mark.parametrize(
    ("part", "fault"), [("start_scale", wider), ("outer_scale", wider), ("inner_zero", moved)]
)
def test_a_wrong_scale_or_zero_point_is_refused(
    tmp_path: Path, part: str, fault: Callable[[Any], Any]
) -> None:
    right, wrong = Written("uint8").residual(), Written("uint8").residual()
    (value,) = [numpy_helper.to_array(each) for each in wrong.graph.initializer if each.name == part]
    wrong.graph.initializer.append(numpy_helper.from_array(fault(value), "fault"))
    (decoding,) = [node for node in wrong.graph.node if node.op_type[0] == "D" and part in node.input]
    decoding.input[list(decoding.input).index(part)] = "fault"
    for name, model in {"right": right, "wrong": wrong}.items():
        onnx.save(model, tmp_path / f"{name}.onnx")
    assert_refused(tmp_path / "right.onnx", lambda inputs: computed(tmp_path / "wrong.onnx", inputs))


def test_a_few_outputs_far_off_are_refused(tmp_path: Path) -> None:
    onnx.save(Written("uint8").residual(), tmp_path / "m.onnx")

    def spoilt(inputs: dict[str, Any]) -> list[Any]:
        (found,) = run_onnxruntime(str(tmp_path / "m.onnx"), inputs)
        found.reshape(-1)[: found.size // 200] += np.abs(found).max() / 8
        return [found]

    assert_refused(tmp_path / "m.onnx", spoilt)


def assert_refused(path: Path, outputs: Callable[[dict[str, Any]], list[Any]]) -> None:
    inputs = inputs_of(path)
    error, own_error = errors_against_onnxruntime(str(path), inputs, outputs(inputs))
    with pytest.raises(Refused, match="do not use this library"):
        check_error({"recipe": {"before": []}}, error, str(path), own_error)
