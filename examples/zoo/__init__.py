"""Example networks with seeded random weights, built with only ``onnx.helper``."""

from collections.abc import Callable

from onnx import ModelProto

from zoo.bert import bert_small
from zoo.mlp import mlp
from zoo.mobilenetv2 import mobilenetv2
from zoo.resnet18 import resnet18

__all__ = ["MODELS"]

MODELS: dict[str, Callable[[int], ModelProto]] = {
    "mlp": mlp,
    "resnet18": resnet18,
    "mobilenetv2": mobilenetv2,
    "bert-small": bert_small,
}
"""Maps an example's name to its builder, which takes the seed of the weights."""
