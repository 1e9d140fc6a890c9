"""Command line that writes the chosen example networks as ONNX files."""

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path

from onnx import ModelProto, checker

Networks = Mapping[str, Callable[[int], ModelProto]]


def build(networks: Networks, metavar: str, description: str, prog: str | None = None) -> None:
    """Write `DIR/NAME.onnx` for every name on the command line and print its path."""
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("names", nargs="+", choices=networks, metavar=metavar, help=", ".join(networks))
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="DIR", help="where the files go")
    parser.add_argument("--seed", type=int, default=0, help="seed of the weights (default 0)")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for name in args.names:
        model = networks[name](args.seed)
        checker.check_model(model, full_check=True)
        path = args.out / f"{name}.onnx"
        path.write_bytes(model.SerializeToString(deterministic=True))
        print(path)
