"""An ONNX model whose weights lie in files beside it, as one file: an upload is one stream of bytes."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Final

from mallorn.core.errors import InvalidModel, MissingPackage

INSTALL: Final = "pip install onnx"
LIMIT_BYTES: Final = 2**31  # of a protobuf message


def embed_weights(model: Path, names: Sequence[str], file: Path) -> Path:
    """Write the model with its weights inside as `file`.

    Raises InvalidModel for weights that are not there or too many for one file, MissingPackage without onnx.
    """
    missing = [name for name in names if not (model.parent / name).is_file()]
    if missing:
        raise InvalidModel(
            f"weights of {str(model)!r} are in the file {missing[0]!r}, which is not beside it",
            hint=f"ls {model.parent}   (copy {missing[0]} there, or export the model again)",
        )
    total_bytes = sum(path.stat().st_size for path in (model, *(model.parent / name for name in names)))
    if total_bytes >= LIMIT_BYTES:
        raise InvalidModel(
            f"{str(model)!r} takes {total_bytes / 1e9:.1f} GB with its weights, one ONNX file less than 2.1",
            hint="export it with smaller weights (float16), or export a part of it",
        )
    try:
        onnx = import_module("onnx")  # by name: services import this package, and never onnx
    except ModuleNotFoundError:
        what = f"{str(model)!r}, whose weights are in other files, needs onnx, which is not installed"
        raise MissingPackage(what, hint=INSTALL) from None
    try:
        onnx.save(onnx.load(str(model)), str(file), save_as_external_data=False)
    except onnx.checker.ValidationError as error:
        raise InvalidModel(
            f"the weights of {str(model)!r} cannot be read: {str(error).strip().splitlines()[0]}",
            hint=f"ls -l {model.parent}",
        ) from None
    return file
