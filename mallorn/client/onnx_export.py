"""Conversion of models to ONNX on the user's machine; the service accepts only ONNX."""

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from mallorn.client.model_upload import ModelUpload
from mallorn.core.detect_non_onnx_format import CONVERT_HDF5
from mallorn.core.errors import InvalidModel
from mallorn.core.installation import import_optional_module, pip_install_command
from mallorn.wording.format_values import file_name

Convert = Callable[[Path, Path], None]
NAMES_TOLD: Final = 12
SAFE_KERAS: Final = (3, 15)  # older ones run code in safe mode: CVE-2025-1550 and later
MOST_IN_ONE_FILE: Final = 1 << 30  # protobuf allows 2 GB, which include the graph's constants


def to_onnx(model: Any, file: str | Path, example_inputs: Any = None, dynamic_shapes: Any = None) -> Path:
    """Convert a model to ONNX, for `Client.submit` and `mallorn compile`; return the path.

    The model is a `.keras` or TFLite file, an IRModule or a PrimFunc of TVM or the JSON
    file of one, or a `torch.nn.Module` with its example inputs: a tensor, a tuple of
    arguments, or a dictionary of named ones. `dynamic_shapes` marks the dimensions that
    stay free, as for torch.export. A torch module's weights of over 1 GiB go to a second
    file. Raises MissingPackage without an exporter, and InvalidModel.
    """
    torch, tvm = sys.modules.get("torch"), sys.modules.get("tvm")
    if torch is not None and isinstance(model, torch.nn.Module):
        _export_torch(model, example_inputs, dynamic_shapes, Path(file))
    elif tvm is not None and isinstance(model, tvm.IRModule | tvm.tirx.PrimFunc):
        module = model if isinstance(model, tvm.IRModule) else tvm.IRModule({"main": model})
        _write_tvm(tvm.ir.save_json(module), Path(file))
    elif convert := CONVERTERS.get(Path(model).suffix.lower()):
        convert(find_model_file(model), Path(file))
    else:
        message = f"{str(model)!r} is neither a torch module nor a {', '.join(CONVERTERS)} file"
        raise InvalidModel(message, hint="an ONNX file needs no conversion")
    return Path(file)


@contextmanager
def as_onnx(model: Any, example_inputs: Any = None, dynamic_shapes: Any = None) -> Iterator[Path]:
    """Yield the path of the model as ONNX: its own file, or a temporary one deleted on exit.

    Raises InvalidModel if a quick check finds no ONNX file, and what `to_onnx` raises.
    """
    is_path = isinstance(model, str | Path)
    if is_path and Path(model).suffix.lower() not in CONVERTERS:
        yield ModelUpload.of(find_model_file(model)).model
        return
    name = Path(model).stem if is_path else type(model).__name__
    with TemporaryDirectory(prefix="mallorn-") as directory:
        file = Path(directory, file_name(name, ".onnx"))
        yield to_onnx(model, file, example_inputs, dynamic_shapes)


def find_model_file(model: str | Path) -> Path:
    """Return a file, or a folder's only ONNX file. Raises InvalidModel if there is none."""
    file = Path(model)
    if file.is_dir():
        files = sorted(file.glob("*.onnx"))
        if len(files) != 1:
            if (file / "saved_model.pb").is_file():
                hint = f"python -m tf2onnx.convert --saved-model {file} --output model.onnx"
            elif files:
                hint = f"give one of them: {', '.join(map(str, files[:NAMES_TOLD]))}"
            else:
                hint = "give the path of an .onnx file"
            count = len(files) or "no"
            raise InvalidModel(f"{str(file)!r} is a directory with {count} ONNX files", hint=hint)
        [file] = files
    if not file.is_file():
        raise InvalidModel(f"there is no file {str(file)!r}", hint="give the path of an .onnx file")
    if not file.stat().st_size:
        raise InvalidModel(f"the file {str(file)!r} is empty", hint="give the path of an .onnx file")
    return file


def _export_torch(module: Any, example_inputs: Any, dynamic_shapes: Any, file: Path) -> None:
    if example_inputs is None:
        message = "a torch module needs example inputs to be exported"
        raise InvalidModel(message, hint="client.submit(net, example_inputs=(x,))")
    import_optional_module("onnxscript", "the export of a torch module", "torch")
    args: tuple[Any, ...] = ()
    kwargs: dict[str, object] = {}
    if isinstance(example_inputs, dict):
        kwargs = example_inputs
    elif isinstance(example_inputs, tuple | list):
        args = tuple(example_inputs)
    else:
        args = (example_inputs,)
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


def _write_tvm(text: str, file: Path) -> None:
    """Write the JSON of a module of TVM as an ONNX file of one node (graphc/onnx/relax_modules.py)."""
    onnx = import_optional_module("onnx", "a module of TVM", "worker")
    if '"ir.IRModule"' not in text:
        hint = "write it by   open('module.json', 'w').write(tvm.ir.save_json(module))"
        raise InvalidModel("this JSON is not a module of TVM", hint=hint)
    node = onnx.helper.make_node("RelaxModule", [], ["outputs"], domain="mallorn.relax", json=text)
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("mallorn.relax", 1)]
    graph = onnx.helper.make_graph([node], "module", [], [])
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
    file.write_bytes(model.SerializeToString())


def _convert_tflite(model: Path, file: Path) -> None:
    import_optional_module("tensorflow", "a TFLite file", "tensorflow")
    tf2onnx = import_optional_module("tf2onnx.convert", "a TFLite file", "tensorflow")
    tf2onnx.from_tflite(str(model), output_path=str(file))


def _convert_keras(model: Path, file: Path) -> None:
    keras = import_optional_module("keras", "a Keras file", "tensorflow")
    import_optional_module("tf2onnx", "a Keras file", "tensorflow")
    if tuple(map(int, re.findall(r"\d+", keras.__version__)[:2])) < SAFE_KERAS:
        version = f"Keras {keras.__version__}"
        message = f"{version} may run code of a Keras file, even in its safe mode"
        raise InvalidModel(message, hint=pip_install_command("tensorflow"))
    network = keras.saving.load_model(model, compile=False, safe_mode=True)
    network.export(file, format="onnx", verbose=False)


def _refuse_hdf5(model: Path, _file: Path) -> None:
    message = f"{str(model)!r} is an HDF5 file of Keras, which may hold code"
    raise InvalidModel(message, hint=CONVERT_HDF5.replace("MODEL", str(model)))


CONVERTERS: Final[dict[str, Convert]] = {
    ".tflite": _convert_tflite,
    ".keras": _convert_keras,
    ".h5": _refuse_hdf5,
    ".json": lambda model, file: _write_tvm(model.read_text(errors="replace"), file),
}
