"""Six networks for boards: two of float32, two of bytes, a decoder with its caches and a range of batches."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from onnx import ModelProto

from benchmarks.networks.development import DEVELOPMENT
from benchmarks.networks.held_out import HELD_OUT
from benchmarks.networks.quantised import QUANTISED
from tests.fixtures.decoder import write_decoder
from zoo import MODELS


@dataclass(frozen=True)
class Network:
    """A network: the function that writes its file, and the options of its job."""

    write: Callable[[Path], object]
    options: Mapping[str, Any] = field(default_factory=dict)


def built(build: Callable[[int], ModelProto]) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(build(0).SerializeToString(deterministic=True))


def _mlp_of_any_batch(path: Path) -> None:
    model = MODELS["mlp"](0)
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    path.write_bytes(model.SerializeToString(deterministic=True))


NETWORKS: Final[Mapping[str, Network]] = {
    "squeeze": Network(built(DEVELOPMENT["squeeze"])),
    "recurrent": Network(built(HELD_OUT["recurrent"])),
    "picture-int8": Network(built(QUANTISED["picture-int8"])),
    "words-int8": Network(built(QUANTISED["words-int8"])),
    "decoder": Network(write_decoder, {"dynamic": {"sequence": [1, 8], "past": [0, 64]}}),
    "mlp-range": Network(_mlp_of_any_batch, {"dynamic": {"batch": [1, 64]}}),
}
