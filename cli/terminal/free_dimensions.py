"""Free dimensions of a model on the command line: asked on a terminal, else refused."""

import sys
from pathlib import Path

import typer

from mallorn.core.check_option_kwargs import OptionKwargs
from mallorn.free_dimensions import find_free_inputs, refuse_free_dimensions


def fix_free_dimensions(file: Path, options: OptionKwargs, asks: bool = True) -> None:
    """Ask for the sizes of free dimensions, and add the shapes to the options.

    Raises InvalidModel, with the options to type, where nobody can be asked.
    """
    if asks and sys.stdin.isatty() and sys.stderr.isatty() and not options.get("dynamic"):
        shapes = dict(options.get("input_shapes") or {})
        sizes: dict[str, int] = {}
        for name, shape in find_free_inputs(file).items():
            if name in shapes:
                continue
            sizes_of_input = []
            for axis, dim in enumerate(shape):
                known = sizes.get(str(dim)) if dim != "?" else None
                if isinstance(dim, str) and known is None:
                    label = f"size of {dim if dim != '?' else f'dimension {axis}'} of input {name}"
                    known = sizes[dim] = typer.prompt(label, default=1, type=int, err=True)
                sizes_of_input.append(dim if isinstance(dim, int) else known or 1)
            shapes[name] = sizes_of_input
        if shapes:
            options["input_shapes"] = shapes
    refuse_free_dimensions(file, options)
