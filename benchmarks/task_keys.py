"""Keys and weights of all tasks of the example networks, compared with a frozen file.

python -m benchmarks.task_keys [--write] [--networks mlp,words-int8]

A key is a hash of the task's program: a change that keeps all keys invalidates no measurement. Without
`--write`, compares with tests/unit/graphc/task_keys.json and exits with 1 if anything differs.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from onnx import ModelProto

from benchmarks.networks.development import DEVELOPMENT
from benchmarks.networks.held_out import HELD_OUT
from benchmarks.networks.quantised import QUANTISED
from mallorn.core.targets import parse_target
from mallorn.workers.tvm.extract_tasks import extract
from mallorn.workers.tvm.graph_recipes import recipe_for
from zoo import MODELS
from zoo.command import Networks

FROZEN: Final = Path("tests/unit/graphc/task_keys.json")
#: AVX-512, AVX2, AMX: vector lanes and passes differ. AVX2 lacks VNNI and bfloat16.
TARGETS: Final = {
    name: f'{{"kind": "llvm", "mcpu": "{name}", "num-cores": 2}}'
    for name in ("znver4", "haswell", "sapphirerapids")
}


@dataclass(frozen=True)
class Frozen:
    """A network's builder, the targets and the precision to compile it for."""

    build: Callable[[int], ModelProto]
    targets: Sequence[str]
    precision: str = "float32"


_REAL: Final[Networks] = MODELS | DEVELOPMENT | HELD_OUT
NETWORKS: Final[Mapping[str, Frozen]] = {
    **{name: Frozen(build, ("znver4", "haswell")) for name, build in _REAL.items()},
    **{name: Frozen(build, tuple(TARGETS)) for name, build in QUANTISED.items()},
    **{
        f"{name}-bf16": Frozen(_REAL[name], ("znver4", "sapphirerapids"), "bf16")
        for name in ("mobilenetv2", "resnet18")
    },
}
CASES: Final = [(name, target) for name, frozen in NETWORKS.items() for target in frozen.targets]
Keys = dict[str, int]  # weights of tasks by key


def task_keys(network: str, target: str) -> Keys:
    """Return the weight of each task of a network by its key."""
    frozen, parsed = NETWORKS[network], parse_target(TARGETS[target])
    recipe = recipe_for("tuned", parsed, frozen.precision)
    with TemporaryDirectory(prefix="mallorn-keys-") as folder:
        model = Path(folder, f"{network}.onnx")
        model.write_bytes(frozen.build(0).SerializeToString(deterministic=True))
        return {task.key: task.weight for task in extract(str(model), parsed.text, recipe, {}).tasks}


def differences(networks: Iterable[str], frozen: Mapping[str, Mapping[str, Keys]]) -> list[str]:
    """Return a line for each network and target whose tasks changed."""
    lines = []
    for network in networks:
        for target in NETWORKS[network].targets:
            current, stored = task_keys(network, target), frozen[network][target]
            if current != stored:
                removed, new = len(stored.keys() - current.keys()), len(current.keys() - stored.keys())
                lines.append(f"{network} on {target}: {removed} tasks gone, {new} new")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help="freeze what is made now")
    parser.add_argument("--networks", default=",".join(NETWORKS), help="comma-separated names")
    options = parser.parse_args()
    networks = options.networks.split(",")
    frozen = json.loads(FROZEN.read_text())
    if options.write:
        for name in networks:
            frozen[name] = {target: task_keys(name, target) for target in NETWORKS[name].targets}
        FROZEN.write_text(json.dumps(frozen, indent=0, sort_keys=True) + "\n")
        return 0
    changed = differences(networks, frozen)
    print("\n".join(changed) or f"tasks of {len(networks)} networks are as they were")
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
