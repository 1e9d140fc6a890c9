"""A free dimension is told before anything is uploaded, with the options to give."""

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from mallorn.cli import tune_and_resume as on_terminal
from mallorn.client.coordinator_client import Client
from mallorn.client.model_upload import find_free_inputs
from mallorn.core.check_option_kwargs import free_dimensions_error, guess_sizes
from mallorn.core.errors import InvalidModel
from tests.fixtures.onnx_network import saved

GUESSED = "   (guessed: take the sizes that your program uses)"


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
    assert error.hint == f"--input-shape x:1,3 --input-shape m:1,128{GUESSED}"
    options = {"input_shapes": {"m": [1, 1]}}
    error = free_dimensions_error(find_free_inputs(file, options), options["input_shapes"])
    assert error.hint == f"--input-shape x:1,3   or, for a range,  --dynamic batch=1..64{GUESSED}"
    assert error.suggest == {"input_shapes": {"m": [1, 1], "x": [1, 3]}}
    assert not find_free_inputs(file, {"input_shapes": {"m": [1, 1], "x": [1, 3]}})
    assert not find_free_inputs(file, {"dynamic": {"batch": [1, 64]}})


@pytest.mark.parametrize(
    ("shapes", "guess"),
    [
        ({"images": ["batch", 3, "height", "width"]}, {"images": [1, 3, 224, 224]}),
        ({"photo": ["?", "?", "?", 3]}, {"photo": [1, 224, 224, 3]}),
        ({"x": ["N", 3, 48, "W"]}, {"x": [1, 3, 48, 224]}),
        ({"ids": ["batch", "rows"], "mask": ["batch", "rows"]}, {"ids": [1, 128], "mask": [1, 128]}),
        (
            {"x": ["batch", "samples"], "state": [2, "batch", 128]},
            {"x": [1, 128], "state": [2, 1, 128]},
        ),
        ({"state": [2, "?", 128]}, {"state": [2, 1, 128]}),
        ({"volume": ["n", 1, "d", "h", "w"]}, {"volume": [1, 1, 128, 128, 128]}),
        ({"scale": []}, {"scale": []}),
    ],
)
def test_the_sizes_are_those_of_one_picture_or_one_sequence(
    shapes: dict[str, list[int | str]], guess: dict[str, list[int]]
) -> None:
    assert guess_sizes(shapes) == guess


def test_a_name_of_several_inputs_has_one_size_and_one_range() -> None:
    hint = free_dimensions_error({"a": ["n", 3, "h", "w"], "b": ["n", "h"]}, {}).hint
    assert hint is not None
    assert hint.startswith("--input-shape a:1,3,224,224 --input-shape b:1,224")
    assert "--dynamic n=1..64 --dynamic h=1..224 --dynamic w=1..224" in hint


def test_a_negative_size_is_a_free_dimension(tmp_path: Path) -> None:
    node = helper.make_node("Relu", ["x"], ["y"])
    file = Path(saved(tmp_path / "model.onnx", [node], {"x": [-1, 3]}, {"y": None}))
    assert find_free_inputs(file, {}) == {"x": ["?", 3]}


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
