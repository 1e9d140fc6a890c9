"""Free dimensions of a model on the command line: asked on a terminal, else refused."""

import sys
from pathlib import Path

import typer

from mallorn.client.model_upload import find_free_inputs
from mallorn.core.check_option_kwargs import OptionKwargs, free_dimensions_error, guess_sizes
from mallorn.core.control_characters import escape_control_characters


def fix_free_dimensions(file: Path, options: OptionKwargs, asks: bool) -> None:
    """Ask for the sizes of free dimensions, and add the inputs' shapes to the options.

    Raises InvalidModel, with the options to type, unless `asks` and there is a terminal.
    """
    free, sizes = find_free_inputs(file, options), dict[str, int]()
    shapes = dict(options.get("input_shapes") or {})
    if free and not (asks and sys.stdin.isatty() and sys.stderr.isatty()):
        raise free_dimensions_error(free, shapes)
    guesses = guess_sizes(free)
    for name, shape in free.items():
        labels = [f"dimension {axis} of {name}" if size == "?" else size for axis, size in enumerate(shape)]
        for label, guess in zip(labels, guesses[name], strict=True):
            if isinstance(label, str) and label not in sizes:
                question = f"size of {escape_control_characters(label)}"
                sizes[label] = typer.prompt(question, default=guess, type=int, err=True)
        shapes[name] = [label if isinstance(label, int) else sizes[label] for label in labels]
    if free:
        options["input_shapes"] = shapes
