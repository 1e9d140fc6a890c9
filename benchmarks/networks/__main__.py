"""Build networks as ONNX files: python -m benchmarks.networks generator unet -o DIR [--seed 0]."""

from typing import Final

from benchmarks.networks.ablated import ABLATED
from benchmarks.networks.development import DEVELOPMENT
from benchmarks.networks.held_out import HELD_OUT
from benchmarks.networks.odd import odd
from zoo.command import build

NETWORKS: Final = DEVELOPMENT | HELD_OUT | ABLATED | {"odd": odd}

if __name__ == "__main__":
    build(NETWORKS, "NAME", str(__doc__), "python -m benchmarks.networks")
