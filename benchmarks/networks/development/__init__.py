"""Networks that may be looked at while the product is changed."""

from collections.abc import Callable

from onnx import ModelProto

from benchmarks.networks.development.convnext import convnext
from benchmarks.networks.development.generator import generator
from benchmarks.networks.development.prefill import prefill
from benchmarks.networks.development.recommender import recommender
from benchmarks.networks.development.segformer import segformer
from benchmarks.networks.development.segmentation import segmentation
from benchmarks.networks.development.shuffle import shuffle
from benchmarks.networks.development.speech import speech
from benchmarks.networks.development.squeeze import squeeze
from benchmarks.networks.development.unet import unet

DEVELOPMENT: dict[str, Callable[[int], ModelProto]] = {
    "generator": generator,
    "segmentation": segmentation,
    "speech": speech,
    "prefill": prefill,
    "unet": unet,
    "convnext": convnext,
    "squeeze": squeeze,
    "recommender": recommender,
    "shuffle": shuffle,
    "segformer": segformer,
}
"""By name; the argument is the seed of the weights."""
