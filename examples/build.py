"""Build example networks as ONNX files: python examples/build.py mlp resnet18 -o DIR [--seed 0]."""

from zoo import MODELS
from zoo.command import build

if __name__ == "__main__":
    build(MODELS, "MODEL", "Build example networks with seeded random weights.")
