"""A free dimension is told before anything is uploaded, with the options to give."""

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from mallorn.cli.terminal import free_dimensions as on_terminal
from mallorn.client.coordinator_client import Client
from mallorn.client.model_upload import find_free_inputs
from mallorn.core.check_option_kwargs import free_dimensions_error
from mallorn.core.errors import InvalidModel
from tests.fixtures.onnx_network import saved


@pytest.fixture
def file(tmp_path: Path) -> Path:
    inputs = {"x": ["batch", 3], "m": ["batch", None], "s": [2], "w": ["k"]}
    node = helper.make_node("Relu", ["x"], ["y"])
    return Path(saved(tmp_path / "model.onnx", [node], inputs, {"y": None}, w=np.zeros(1, "float32")))


def test_free_inputs_are_found_without_onnx_and_weights_are_none(file: Path) -> None:
    assert find_free_inputs(file, {}) == {"x": ["batch", 3], "m": ["batch", "?"]}


def test_the_options_to_give_are_told(file: Path) -> None:
    error = free_dimensions_error(find_free_inputs(file, {}), {})
    assert error.message == "these inputs have free dimensions: x [batch, 3]; m [batch, ?]"
    assert error.hint == "--input-shape x:1,3 --input-shape m:1,1"
    options = {"input_shapes": {"m": [1, 1]}}
    error = free_dimensions_error(find_free_inputs(file, options), options["input_shapes"])
    assert error.hint == "--input-shape x:1,3   or, for a range,  --dynamic batch=1..64"
    assert error.suggest == {"input_shapes": {"m": [1, 1], "x": [1, 3]}}
    assert not find_free_inputs(file, {"input_shapes": {"m": [1, 1], "x": [1, 3]}})
    assert not find_free_inputs(file, {"dynamic": {"batch": [1, 64]}})


def test_a_model_with_free_dimensions_is_not_uploaded(file: Path) -> None:
    with Client("http://127.0.0.1:9") as client, pytest.raises(InvalidModel, match="free dimensions"):
        client.submit(file)


def test_a_terminal_is_asked_once_for_a_size(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(on_terminal.sys, "stdin", type("In", (), {"isatty": lambda self: True})())
    monkeypatch.setattr(on_terminal.sys, "stderr", type("Err", (), {"isatty": lambda self: True})())
    monkeypatch.setattr(on_terminal.typer, "prompt", lambda text, **_: asked.append(text) or 4)
    options: dict[str, object] = {}
    on_terminal.fix_free_dimensions(file, options, asks=True)  # type: ignore[arg-type]
    assert options == {"input_shapes": {"x": [4, 3], "m": [4, 4]}}
    assert asked == ["size of batch", "size of dimension 1 of m"]
