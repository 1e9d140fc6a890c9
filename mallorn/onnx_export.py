"""Models of other frameworks as ONNX, made on the user's machine: what the service gets is ONNX alone."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from mallorn.core.errors import InvalidModel
from mallorn.core.install_command import need
from mallorn.model_upload import ModelUpload
from mallorn.wording.format_values import file_name

Convert = Callable[[Path, Path], None]
NAMES_TOLD: Final = 12
MOST_IN_ONE_FILE: Final = 1 << 30  # protobuf ends at 2 GB, and constants of the graph come on top


def to_onnx(model: Any, file: str | Path, example_inputs: Any = None, dynamic_shapes: Any = None) -> Path:
    """Write a model as an ONNX file, for `Client.tune` and then for `mallorn compile`.

    A `torch.nn.Module` is exported with its example inputs (a tensor, a tuple of arguments, or a dictionary
    of named ones); which of their dimensions stay free, `dynamic_shapes` tells as torch.export takes it. More
    weights than an ONNX file holds lie beside it. A Keras or TFLite file is converted. Raises MissingPackage
    without the exporter.
    """
    if _is_module(model):
        _export_torch(model, example_inputs, dynamic_shapes, Path(file))
        return Path(file)
    convert = CONVERTERS.get(Path(model).suffix.lower())
    if convert is None:
        raise InvalidModel(
            f"{str(model)!r} is none of {', '.join(CONVERTERS)} and no torch module",
            hint="an ONNX file needs no conversion",
        )
    convert(existing(model), Path(file))
    return Path(file)


@contextmanager
def as_onnx(model: Any, example_inputs: Any = None, dynamic_shapes: Any = None) -> Iterator[Path]:
    """The path of an ONNX file: the model's own, or one that is gone after the block.

    Raises InvalidModel for what is no ONNX model by its first look; nothing is run or parsed that costs time.
    """
    if not _is_module(model) and Path(model).suffix.lower() not in CONVERTERS:
        yield ModelUpload.of(existing(model)).model
        return
    name = type(model).__name__ if _is_module(model) else Path(model).stem
    with TemporaryDirectory(prefix="mallorn-") as directory:
        file = Path(directory, file_name(name, ".onnx"))
        yield to_onnx(model, file, example_inputs, dynamic_shapes)


def existing(model: str | Path) -> Path:
    """The path of a file with something in it, or of the only ONNX file of a folder. Raises InvalidModel."""
    file = _only(Path(model)) if Path(model).is_dir() else Path(model)
    if not file.is_file():
        raise InvalidModel(f"there is no file {str(file)!r}", hint="give the path of an .onnx file")
    if not file.stat().st_size:
        raise InvalidModel(f"the file {str(file)!r} is empty", hint="give the path of an .onnx file")
    return file


def _only(folder: Path) -> Path:
    found = sorted(folder.glob("*.onnx"))
    if len(found) == 1:
        return found[0]
    if (folder / "saved_model.pb").is_file():
        hint = f"python -m tf2onnx.convert --saved-model {folder} --output model.onnx"
    elif found:
        hint = f"give one of them: {', '.join(map(str, found[:NAMES_TOLD]))}"
    else:
        hint = "give the path of an .onnx file"
    raise InvalidModel(f"{str(folder)!r} is a directory with {len(found) or 'no'} ONNX files", hint=hint)


def _is_module(model: Any) -> bool:
    """Whoever has a module has imported torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


def _export_torch(module: Any, example_inputs: Any, dynamic_shapes: Any, file: Path) -> None:
    if example_inputs is None:
        raise InvalidModel(
            "a torch module needs example inputs to be exported", hint="client.tune(net, example_inputs=(x,))"
        )
    need("onnxscript", "the export of a torch module", "torch")
    args, kwargs = _arguments(example_inputs)
    was_training = module.training
    module.eval()
    try:
        tensors = (*module.parameters(), *module.buffers())
        sys.modules["torch"].onnx.export(
            module,
            args,
            str(file),
            kwargs=kwargs,
            dynamic_shapes=dynamic_shapes,
            dynamo=True,
            external_data=sum(tensor.numel() * tensor.element_size() for tensor in tensors)
            > MOST_IN_ONE_FILE,
            verbose=False,
        )
    finally:
        module.train(was_training)


def _arguments(example_inputs: Any) -> tuple[tuple[Any, ...], dict[str, object]]:
    if isinstance(example_inputs, dict):
        return (), example_inputs
    return (tuple(example_inputs) if isinstance(example_inputs, tuple | list) else (example_inputs,)), {}


def _convert_tflite(model: Path, file: Path) -> None:
    need("tensorflow", "a TFLite file", "tensorflow")
    tf2onnx = need("tf2onnx.convert", "a TFLite file", "tensorflow")
    tf2onnx.from_tflite(str(model), output_path=str(file))


def _convert_keras(model: Path, file: Path) -> None:
    keras = need("keras", "a Keras file", "tensorflow")
    need("tf2onnx", "a Keras file", "tensorflow")
    # In its safe mode, which is the default, this runs no code that comes with the file.
    keras.saving.load_model(model, compile=False).export(file, format="onnx", verbose=False)


CONVERTERS: Final[dict[str, Convert]] = {
    ".tflite": _convert_tflite,
    ".keras": _convert_keras,
    ".h5": _convert_keras,
}
