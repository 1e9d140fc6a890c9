"""Workloads of torch networks that come in by several ways: how many have the key that they have by ONNX.

python -m benchmarks.torch_keys [NAME ...] [--raw docs/results/torch/keys.jsonl]

The ways: `backend`, as `torch.compile(backend="mallorn")` exports dynamo's graph; `program`,
torch.export and TVM's `from_exported_program`; `fx`, a symbolic trace and TVM's `from_fx`. By
ONNX is `mallorn.to_onnx(module)`. Needs torch (`make torch`). Nothing is timed. The headline is
the backend's share of operations with a common key.
"""

import argparse
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import torch
from tvm.relax.frontend.torch import from_exported_program, from_fx

from benchmarks.hosts import describe_host
from benchmarks.torch_networks import NETWORKS, build
from mallorn.core.targets import parse_target
from mallorn.onnx_export import to_onnx
from mallorn.torch_backend import CompiledGraph
from mallorn.workers.interfaces.model_compiler import Extraction
from mallorn.workers.tvm.network.extract_tasks import extract, extract_network_tasks
from mallorn.workers.tvm.network.graph_recipes import TUNED
from mallorn.workers.tvm.network.import_onnx_to_relax import ImportedModel

RAW: Final = Path("docs/results/torch/keys.jsonl")
TARGET: Final = parse_target('{"kind": "llvm", "mcpu": "znver4", "num-cores": 2}').text
WAYS: Final = ("backend", "program", "fx")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=list(NETWORKS), help="networks; default: all five")
    parser.add_argument("--raw", type=Path, default=RAW)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = [compare(name, way) for name in args.names for way in WAYS]
    host = describe_host() | {"torch": torch.__version__, "target": TARGET}
    args.raw.parent.mkdir(parents=True, exist_ok=True)
    args.raw.write_text("".join(json.dumps(host | row) + "\n" for row in rows))
    for row in rows:
        print(f"{row['network']:12} {row['way']:8} {row.get('refused') or describe(row)}")
    shares = [row["share_of_operations"] for row in rows if row["way"] == "backend"]
    print(f"share of operations with a common key, torch.compile, least network: {min(shares):.3f}")


def describe(row: Mapping[str, Any]) -> str:
    share = f"{row['share_of_operations']:.3f} of the operations"
    return f"{row['common']:3} of {row['by_onnx']:3} workloads, {share}"


def compare(name: str, way: str) -> dict[str, Any]:
    """Return how many workloads of a network, by ONNX, this way finds."""
    network, inputs = build(name)
    with TemporaryDirectory() as folder, torch.no_grad():
        known = operations_by_key(extract_file(to_onnx(network, Path(folder, "model.onnx"), inputs)))
        try:
            found = operations_by_key(import_by(way, network, inputs, Path(folder)))
        except Exception as error:  # whatever TVM's importers raise is a result
            refused = f"{type(error).__name__}: {error}".partition("\n")[0][:200]
            return {"network": name, "way": way, "refused": refused}
    common = known.keys() & found.keys()
    return {
        "network": name,
        "way": way,
        "by_onnx": len(known),
        "by_this_way": len(found),
        "common": len(common),
        "share_of_operations": sum(known[key] for key in common) / sum(known.values()),
    }


def import_by(way: str, network: torch.nn.Module, inputs: tuple[Any, ...], folder: Path) -> Extraction:
    if way == "backend":
        files: list[Path] = []

        def keep(graph: Any, args: Any) -> Any:
            frozen, _ = CompiledGraph(graph, args, {}).freeze(args)
            files.append(
                to_onnx(frozen, folder / "graph.onnx", tuple(args[index] for index in frozen.inputs))
            )
            return graph.forward

        torch._dynamo.reset()
        torch.compile(network, backend=keep)(*inputs)
        (file,) = files
        return extract_file(file)
    if way == "program":
        mod = from_exported_program(torch.export.export(network, inputs))
    else:
        specs = [(tuple(value.shape), str(value.dtype).removeprefix("torch.")) for value in inputs]
        mod = from_fx(torch.fx.symbolic_trace(network), specs)
    return extract_network_tasks(ImportedModel(mod, [], [], {}), TARGET, TUNED)


def extract_file(file: Path) -> Extraction:
    return extract(str(file), TARGET, TUNED, {})


def operations_by_key(extraction: Extraction) -> dict[str, float]:
    return {task.key: task.flops * task.weight for task in extraction.tasks}


if __name__ == "__main__":
    main()
