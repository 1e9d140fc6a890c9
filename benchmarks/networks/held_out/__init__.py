"""Networks that are built and timed at the end alone: whoever changes the product does not look at them."""

from collections.abc import Callable

from onnx import ModelProto

from benchmarks.networks.held_out.densenet import densenet
from benchmarks.networks.held_out.inception import inception
from benchmarks.networks.held_out.recurrent import recurrent
from benchmarks.networks.held_out.residual import residual
from benchmarks.networks.held_out.tcn import tcn
from benchmarks.networks.held_out.transformer import transformer
from benchmarks.networks.held_out.vit import vit

HELD_OUT: dict[str, Callable[[int], ModelProto]] = {
    "transformer": transformer,
    "residual": residual,
    "densenet": densenet,
    "vit": vit,
    "inception": inception,
    "tcn": tcn,
    "recurrent": recurrent,
}
"""By name; the argument is the seed of the weights."""
