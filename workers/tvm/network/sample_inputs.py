"""Reads the inputs that a user gives for checks: arrays by input name, once or for several draws."""

import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mallorn.core.errors import InvalidModel
from mallorn.graphc.export import compile_network as stock
from mallorn.graphc.export.compare_with_onnxruntime import compute_values
from mallorn.graphc.onnx.read_with_weights_on_disk import embed_weights
from mallorn.workers.interfaces.model_compiler import Shapes
from mallorn.workers.tvm.network.check_onnx_model import read_model

MOST_DRAWS: Final = 16
HINT: Final = (
    "numpy.savez(FILE, NAME=array, ...); of several draws: numpy.savez(FILE, **{'0/NAME': array, ...})"
)
_OF_DRAW: Final = re.compile(r"([0-9]{1,4})/(.+)", re.DOTALL)


def split_samples(
    model_path: str, samples_npz: str, folder: str, input_shapes: Shapes, region_path: str | None = None
) -> list[str]:
    specs = stock.input_specs(model := read_model(model_path), input_shapes)
    region = None if region_path is None else stock.input_specs(read_model(region_path), {})
    paths = []
    for number, draw in enumerate(_read_draws(samples_npz, [spec["name"] for spec in specs])):
        arrays = {spec["name"]: _check_array(draw[spec["name"]], spec, number) for spec in specs}
        if region is not None:
            embed_weights(model)
            arrays = compute_values(model, arrays, [spec["name"] for spec in region])
        paths.append(str(Path(folder, f"samples-{number}.npz")))
        np.savez(paths[-1], **arrays)  # type: ignore[arg-type]
    return paths


def _read_draws(path: str, names: Sequence[str]) -> list[Mapping[str, NDArray[Any]]]:
    """Return the arrays of each draw by input name. Raises InvalidModel if the file is no
    npz, or a draw lacks an input or has another."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise InvalidModel(f"the file of inputs is no npz of arrays: {error}", hint=HINT) from None
    draws: dict[int, dict[str, NDArray[Any]]] = {}
    for key, array in arrays.items():
        place = None if key in names else _OF_DRAW.fullmatch(key)
        number, name = (int(place[1]), place[2]) if place else (0, key)
        draws.setdefault(number, {})[name] = array
    for number, draw in sorted(draws.items()):
        if draw.keys() != {*names}:
            lacking, unknown = sorted({*names} - draw.keys()), sorted(draw.keys() - {*names})
            problem = f"lacks {', '.join(lacking)}" if lacking else f"has {', '.join(unknown)}"
            raise InvalidModel(
                f"draw {number} of the file of inputs {problem}; the model takes {', '.join(names)}",
                hint=HINT,
            )
    if not 1 <= len(draws) <= MOST_DRAWS:
        raise InvalidModel(
            f"the file of inputs has {len(draws)} draws; 1 to {MOST_DRAWS} are taken", hint=HINT
        )
    return [draw for _, draw in sorted(draws.items())]


def _check_array(array: NDArray[Any], spec: stock.InputSpec, number: int) -> NDArray[Any]:
    """Return the array. Raises InvalidModel if its type or shape is not the input's."""
    if str(array.dtype) != spec["dtype"] or list(array.shape) != list(spec["shape"]):
        raise InvalidModel(
            f"input {spec['name']!r} of draw {number} is {array.dtype} {list(array.shape)}; the model takes "
            f"{spec['dtype']} {list(spec['shape'])}",
            hint="give inputs of the shapes that are tuned, or --input-shape for these inputs",
        )
    return np.asarray(array, order="C")
