"""Build networks as ONNX files: python -m benchmarks.networks generator unet -o DIR [--seed 0]."""

import argparse
from pathlib import Path

from onnx import checker

from benchmarks.networks.development import DEVELOPMENT
from benchmarks.networks.held_out import HELD_OUT


def main() -> None:
    """Write `DIR/NAME.onnx` for every name on the command line and print its path."""
    networks = DEVELOPMENT | HELD_OUT
    parser = argparse.ArgumentParser(prog="python -m benchmarks.networks", description=__doc__)
    parser.add_argument("names", nargs="+", choices=networks, metavar="NAME", help=", ".join(networks))
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


if __name__ == "__main__":
    main()
