"""Writes architectures with random weights as ONNX files; run by an interpreter that has torch and the rest.

python benchmarks/zoo/torch_side [NAME ...] -o DIR [--exporter dynamo | script] [--list]

Needs torch, torchvision, timm, transformers, onnx and onnxscript. A name without a file is told with the
reason, on a line of its own, and the others go on.
"""

import argparse
import contextlib
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch
from layers import layers
from networks import Network
from text import text
from vision import vision

SEED = 0
OPSET = {"script": 17, "dynamo": 20}


def main() -> None:
    """Write what is asked for, or everything."""
    torch.backends.mha.set_fastpath_enabled(False)  # an operator that no exporter knows
    makers = vision() | text() | layers()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("-o", "--out", type=Path, help="where the files go")
    parser.add_argument("--exporter", choices=OPSET, default="script")
    parser.add_argument("--list", action="store_true", help="print the names alone")
    args = parser.parse_args()
    if args.list or args.out is None:
        print("\n".join(makers))
        return
    args.out.mkdir(parents=True, exist_ok=True)
    for name in args.names or makers:
        path = args.out / f"{name}.onnx"
        if path.exists():
            continue
        try:
            torch.manual_seed(SEED)
            _export(makers[name](), path, args.exporter)
            print(f"{name}: {path.stat().st_size / 1e6:.1f} MB", flush=True)
        except Exception as error:  # whatever a library raises of its own model is no reason to stop
            path.unlink(missing_ok=True)
            print(f"{name}: not exported: {type(error).__name__}: {str(error).strip()[:200]}", flush=True)


def _export(network: Network, path: Path, exporter: str) -> None:
    inputs = tuple(network.inputs.values())
    options = {"input_names": list(network.inputs), "opset_version": OPSET[exporter]}
    if exporter == "dynamo":
        options["external_data"] = False
    with torch.no_grad(), warnings.catch_warnings(), _silence():
        warnings.simplefilter("ignore")
        module = network.module.eval()
        torch.onnx.export(module, inputs, str(path), dynamo=exporter == "dynamo", **options)


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Exporters print whole graphs where they fail, past Python's own streams; the error says as much."""
    kept = [os.dup(stream) for stream in (1, 2)]
    with open(os.devnull, "w") as nowhere:
        for stream in (1, 2):
            os.dup2(nowhere.fileno(), stream)
        try:
            yield
        finally:
            for stream, own in zip((1, 2), kept, strict=True):
                os.dup2(own, stream)
                os.close(own)


if __name__ == "__main__":
    main()
