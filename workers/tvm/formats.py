"""What a refused upload looks like, so that the refusal can say what to do instead."""

from dataclasses import dataclass

_EXPORT_TORCH = "export it first: torch.onnx.export(model, example, 'model.onnx')"
_CODE = "export the network as ONNX; TVM's own text forms are code and are not accepted"


@dataclass(frozen=True, slots=True)
class Foreign:
    """A format that is not ONNX, in words, and how to get to ONNX."""

    name: str
    hint: str


def foreign_format(data: bytes) -> Foreign | None:
    """The well-known format these bytes are in, if it is one."""
    head = data[:512].lstrip()
    if data[:4] == b"PK\x03\x04":
        return _archive(data)
    if data[:2] == b"\x80\x02" or data[:2] == b"\x80\x04":
        return Foreign("a pickle (PyTorch or scikit-learn)", _EXPORT_TORCH)
    if data[4:8] == b"TFL3":
        return Foreign(
            "a TensorFlow Lite model", "convert it: python -m tf2onnx.convert --tflite MODEL --output OUT"
        )
    if data[4:8] == b"ORTM":
        return Foreign("an onnxruntime (.ort) model", "send the ONNX file it was made from")
    if data[:8] == b"\x89HDF\r\n\x1a\n":
        return Foreign(
            "an HDF5 file (Keras)", "convert it: python -m tf2onnx.convert --keras MODEL --output OUT"
        )
    if data[:4] == b"\x7fELF":
        return Foreign("a compiled library", "send the ONNX file it was made from")
    if head[:1] in (b"{", b"["):
        return Foreign("JSON (a Relax module?)", _CODE)
    if b"@I.ir_module" in data or b"tvm.script" in data or head.startswith((b"import ", b"from ", b"def ")):
        return Foreign("Python or TVMScript text", _CODE)
    return None


def _archive(data: bytes) -> Foreign:
    # A state dict and a scripted module are both zips; either way the network has to be traced in Python.
    if b"data.pkl" in data[:4096] or b"constants.pkl" in data[-65536:]:
        return Foreign("a PyTorch archive (.pt)", _EXPORT_TORCH)
    return Foreign("a zip archive", "unpack it and send the .onnx file inside")
