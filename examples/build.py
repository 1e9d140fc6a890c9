"""Build example networks as ONNX files: python examples/build.py mlp resnet18 -o DIR [--seed 0]."""

import argparse
from pathlib import Path

from onnx import checker

from zoo import MODELS


def main() -> None:
    """Write `DIR/NAME.onnx` for every name on the command line and print its path."""
    parser = argparse.ArgumentParser(description="Build example networks with seeded random weights.")
    parser.add_argument("models", nargs="+", choices=MODELS, metavar="MODEL", help=", ".join(MODELS))
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="DIR", help="where the files go")
    parser.add_argument("--seed", type=int, default=0, help="seed of the weights (default 0)")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for name in args.models:
        model = MODELS[name](args.seed)
        checker.check_model(model, full_check=True)
        path = args.out / f"{name}.onnx"
        path.write_bytes(model.SerializeToString(deterministic=True))
        print(path)


if __name__ == "__main__":
    main()
