"""Quantise a network to 8 bits: python examples/quantize.py MODEL.onnx --data SAMPLES.npz -o OUT.onnx."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from mallorn.cli.terminal.output import JsonOption, print_error, print_json, print_note, stdout
from mallorn.client.onnx_export import find_model_file
from mallorn.core.errors import InvalidRequest, MallornError
from mallorn.core.installation import import_optional_module

INSTALL = "worker"  # the extra that has onnxruntime
BITS, GROUPS = (4, 8), (16, 32, 64, 128, 256)
SAVE = "numpy.savez('samples.npz', INPUT=array)   (samples along the first axis)"


class PrintsErrors(TyperCommand):
    """Prints an error with the next command, and exits with its code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except MallornError as error:
            print_error(error.message, error.hint)
            raise typer.Exit(error.exit_code) from None


app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command(cls=PrintsErrors)
def quantize(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="An ONNX file of float32 numbers.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="OUT.onnx", help="The file to write.")],
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="SAMPLES.npz",
            help="Sample inputs: an array for each input, by its name, samples along the first axis.",
        ),
    ] = None,
    weights: Annotated[
        int | None,
        typer.Option(
            "--weights", metavar="BITS", help="Quantise only weights, to 4 or 8 bits; needs no samples."
        ),
    ] = None,
    group: Annotated[
        int,
        typer.Option(
            "--group", metavar="N", help="With --weights: how many weights share a scale, 16 to 256."
        ),
    ] = 32,
    as_json: JsonOption = False,
) -> None:
    """Quantise a float32 network to 8 bits, with onnxruntime's quantiser.

    Scales are computed from the samples; weights have one scale per output. Convolutions and products with
    weights are quantised; in a network that is mostly convolutions, the operators between them too.

    With --weights 4 or 8 only the weights of products are quantised, with one scale per group: a decoder's
    step spends most of its time reading them. Samples then serve only to measure the error.
    """
    import_optional_module("onnxruntime", "examples/quantize.py", INSTALL)
    import_optional_module("onnx", "examples/quantize.py", INSTALL)
    from quantize_model import write_narrow_weights, write_quantised_model

    model = find_model_file(model)
    if data is not None and not data.is_file():
        raise InvalidRequest(f"there is no file {str(data)!r}", hint=SAVE)
    if not output.absolute().parent.is_dir():
        raise InvalidRequest(f"there is no directory {output.parent}", hint=f"mkdir -p {output.parent}")
    if output.exists() and output.samefile(model):
        raise InvalidRequest(f"the output {output} is the input", hint="choose another -o")
    if weights is None:
        if data is None:
            message = "quantising activations needs samples, and --data names none"
            raise InvalidRequest(message, hint="--data samples.npz   or   --weights 8")
        print_note(f"quantising {model} with onnxruntime")
        result = write_quantised_model(model, data, output)
    else:
        if weights not in BITS:
            raise InvalidRequest(f"weights cannot have {weights} bits", hint="--weights 4 or --weights 8")
        if group not in GROUPS:
            sizes = ", ".join(map(str, GROUPS))
            raise InvalidRequest(f"{group} is not a size of groups", hint=f"--group takes {sizes}")
        print_note(f"rounding the weights of {model} to {weights} bits")
        result = write_narrow_weights(model, data, output, weights, group)
    if as_json:
        return print_json({"model": str(output), **asdict(result)})
    stdout().print(f"{output}: {result.bytes / 1e6:.1f} MB, from {result.float_bytes / 1e6:.1f}")
    for name, error in result.errors.items():
        stdout().print(
            f"{name}: against float32, on {result.samples} samples, relative error "
            f"{error.mean:.1e} (mean), {error.largest:.1e} (largest)"
        )
    print_note(f"tune it: mallorn tune {output}")


if __name__ == "__main__":
    app()
