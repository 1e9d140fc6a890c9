"""Build networks as ONNX files: python -m benchmarks.networks generator unet -o DIR [--seed 0]."""

from benchmarks.networks.development import DEVELOPMENT
from benchmarks.networks.held_out import HELD_OUT
from benchmarks.networks.odd import odd
from zoo.command import build

if __name__ == "__main__":
    build(DEVELOPMENT | HELD_OUT | {"odd": odd}, "NAME", str(__doc__), "python -m benchmarks.networks")
