"""Detection of model formats other than ONNX, so that errors can say how to convert them."""

from dataclasses import dataclass
from typing import Final

_EXPORT_TORCH: Final = "export the network it belongs to: torch.onnx.export(model, example, 'model.onnx')"
_CODE: Final = "code is not accepted; write the module as   tvm.ir.save_json(module)   to MODEL.json"
CONVERT_HDF5: Final = (
    "if you trust its author:   "
    'python -c \'import keras; keras.saving.load_model("MODEL").save("MODEL.keras")\''
)
_ANOTHER: Final = "give the path of an .onnx file"
_SOURCE: Final = "give the ONNX file it was made from"
_PICTURES: Final = {b"\xff\xd8\xff": "JPEG", b"\x89PNG": "PNG", b"GIF8": "GIF"}
SAMPLE_BYTES: Final = 1 << 16  # bytes from a file's start and end that detection reads


@dataclass(frozen=True, slots=True)
class Foreign:
    """A model format that is not ONNX, and a hint how to get an ONNX file instead."""

    name: str
    hint: str


def foreign_format(data: bytes) -> Foreign | None:
    """Return the well-known format that these bytes have; None if they have none."""
    if data[:4] == b"PK\x03\x04":
        # State dicts and scripted modules are zips; both need an export in Python.
        if b"data.pkl" in data[:4096] or b"constants.pkl" in data[-SAMPLE_BYTES:]:
            return Foreign("a PyTorch archive (.pt)", _EXPORT_TORCH)
        if b"model.weights.h5" in data:
            return _converted("a Keras archive", ".keras")
        return Foreign("a zip archive", "unpack it and give the .onnx file inside")
    if data[:1] == b"\x80" and data[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return Foreign("a pickle (PyTorch or scikit-learn)", _EXPORT_TORCH)
    if data[4:8] == b"TFL3":
        return _converted("a TensorFlow Lite model", ".tflite")
    if data[4:8] == b"ORTM":
        return Foreign("an onnxruntime (.ort) model", _SOURCE)
    if data[:8] == b"\x89HDF\r\n\x1a\n":
        return Foreign("an HDF5 file (Keras)", CONVERT_HDF5)
    if data[8:10] in (b'{"', b"{ ") and int.from_bytes(data[:8], "little") < 1 << 32:
        return Foreign("a file of weights without their network (safetensors)", _EXPORT_TORCH)
    if data[:4] == b"\x7fELF":
        return Foreign("a compiled library", _SOURCE)
    if data[:2] == b"\x1f\x8b":
        return Foreign("a gzip archive", "gunzip -S '' MODEL   (and give the .onnx file inside)")
    picture = next((name for magic, name in _PICTURES.items() if data.startswith(magic)), None)
    if picture:
        return Foreign(f"a picture ({picture})", _ANOTHER)
    head = data[:512].lstrip()
    if head[:1] in (b"{", b"["):
        return _converted("JSON (a Relax module?)", ".json")
    if b"@I.ir_module" in data or b"tvm.script" in data or head.startswith((b"import ", b"from ", b"def ")):
        return Foreign("Python or TVMScript text", _CODE)
    if head.startswith(b"version https://git-lfs"):
        return Foreign("a pointer of Git LFS and not the model itself", "git lfs pull")
    if head[:15].lower().startswith((b"<!doctype html", b"<html")):
        return Foreign("a web page, as a download of the wrong address gives", "download the file itself")
    if head and data[:512].isascii() and all(byte >= 32 or byte in b"\t\n\r\f" for byte in data[:512]):
        return Foreign("plain text", _ANOTHER)
    return None


def _converted(name: str, suffix: str) -> Foreign:
    """Return a format that the client converts to ONNX if the file has the right suffix."""
    return Foreign(name, f"mv MODEL MODEL{suffix}   (`mallorn tune` converts a file with that ending)")
