"""`mallorn quantize`: a network in 8 bits, made with samples of what it will see."""

from pathlib import Path
from typing import Annotated

import typer

from cli.terminal.output import JsonOption, print_json, print_note, stdout
from mallorn.core.errors import InvalidRequest
from mallorn.core.extras import need
from mallorn.exporting import existing

INSTALL = "bench"  # the extra that has onnxruntime


def quantize(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="An ONNX file of float32 numbers.")],
    data: Annotated[
        Path,
        typer.Option(
            "--data",
            metavar="SAMPLES.npz",
            help="What it will see: an array for each input, by its name, samples along the first axis.",
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="OUT.onnx", help="The file to write.")],
    as_json: JsonOption = False,
) -> None:
    """Make a network of 8 bits from one of float32, with onnxruntime's quantiser.

    Scales follow the samples, and those of weights each of their outputs. Convolutions and products with
    weights are quantised; of a network that is mostly convolutions, what lies between them too.
    """
    need("onnxruntime", "mallorn quantize", INSTALL)
    need("onnx", "mallorn quantize", INSTALL)
    from cli.quantizer import quantised

    model = existing(model)
    _refuse(model, data, output)
    print_note(f"quantising {model} with onnxruntime")
    found = quantised(model, data, output)
    if as_json:
        print_json({"model": str(output), **found.told()})
        return
    stdout().print(f"{output}: {found.bytes / 1e6:.1f} MB, from {found.float_bytes / 1e6:.1f}")
    for name, error in found.errors.items():
        stdout().print(
            f"{name}: against float32, on {found.samples} samples, relative error "
            f"{error.mean:.1e} (mean), {error.largest:.1e} (largest)"
        )
    print_note(f"tune it: mallorn tune {output}")


def _refuse(model: Path, data: Path, output: Path) -> None:
    if not data.is_file():
        hint = "numpy.savez('samples.npz', INPUT=array)   (samples along the first axis)"
        raise InvalidRequest(f"there is no file {str(data)!r}", hint=hint)
    if not output.absolute().parent.is_dir():
        raise InvalidRequest(f"there is no directory {output.parent}", hint=f"mkdir -p {output.parent}")
    if output.exists() and output.samefile(model):
        raise InvalidRequest(f"{output} is the model itself", hint="choose another -o")
