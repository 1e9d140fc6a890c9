"""A model at one of a range's points; what grows is left open."""

from dataclasses import dataclass, replace
from typing import Any, Final

from graphc.ranges import dispatch_by_shape, generalize_two_lengths
from mallorn.core.errors import InvalidModel
from mallorn.core.values.dynamic_shapes import Dynamic
from mallorn.core.values.graph_report import TensorSpec
from workers.interfaces.model_compiler import Shapes
from workers.tvm.import_onnx_to_relax import ImportedModel, load_network

ASKED: Final = "export the model with positions and a mask among its inputs"


@dataclass(frozen=True)
class Ends:
    """The shapes that a model takes and gives at some sizes."""

    sizes: dict[str, int]
    inputs: Shapes
    outputs: list[list[int]]


def load_point(
    model_path: str, dynamic: Dynamic, point: dict[str, int], target: Any
) -> tuple[ImportedModel, list[Ends]]:
    """The model at a point, and its shapes there; its own have what grows at its longest."""
    networks, ends = [], []
    for sizes in dispatch_by_shape.samples(dynamic.ranges, point):
        network = load_network(model_path, dynamic.shapes(sizes), target)
        ends.append(Ends(sizes, dynamic.shapes(sizes), [spec.shape for spec in network.outputs]))
        networks.append(network)
    try:
        mod = generalize_two_lengths.grown(*(network.mod for network in networks), *dynamic.grows)
    except ValueError as error:
        name = dynamic.grows[0]
        raise InvalidModel(
            f"{name!r} cannot be left open: {error}",
            hint=f"give it one size, --dynamic {name}=64, or {ASKED}",
        ) from None
    first, last = networks[0], networks[-1]
    high = max((dynamic.ranges[name][1] for name in dynamic.grows), default=0)
    inputs = [_stretched(*pair, high) for pair in zip(first.inputs, last.inputs, strict=True)]
    outputs = [_stretched(*pair, high) for pair in zip(first.outputs, last.outputs, strict=True)]
    return replace(first, mod=mod, inputs=inputs, outputs=outputs), ends


def _stretched(one: TensorSpec, other: TensorSpec, length: int) -> TensorSpec:
    least, most = generalize_two_lengths.LENGTHS
    sizes = [
        low + (high - low) // (most - least) * (length - least)
        for low, high in zip(one.shape, other.shape, strict=True)
    ]
    return one.model_copy(update={"shape": sizes})
