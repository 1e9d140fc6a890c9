"""Keys and weights of all tasks that the graph compiler makes of the example networks, frozen in a file.

python -m benchmarks.task_keys [--write] [--networks mlp,vit]

A key is a hash of the task's program: what leaves all of them equal changed nothing that was ever measured.
Without `--write` they are compared with tests/unit/graphc/task_keys.json; exits with 1 where they differ.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.networks.development import DEVELOPMENT
from benchmarks.networks.held_out import HELD_OUT
from mallorn.core.targets import parse_target
from workers.tvm.extract_tasks import extract
from workers.tvm.graph_recipes import recipe_for, stored_recipe
from zoo import MODELS
from zoo.command import Networks

FROZEN: Final = Path("tests/unit/graphc/task_keys.json")
#: AVX-512 and AVX2: lanes differ, and with them what passes do.
TARGETS: Final = {
    "znver4": '{"kind": "llvm", "mcpu": "znver4", "num-cores": 2}',
    "haswell": '{"kind": "llvm", "mcpu": "haswell", "num-cores": 2}',
}
NETWORKS: Final[Networks] = MODELS | DEVELOPMENT | HELD_OUT
Keys = dict[str, int]  # weights


def task_keys(network: str, target: str, recipe: str = "tuned") -> Keys:
    """The weight of each task of a network, by its key."""
    parsed = parse_target(TARGETS[target])
    with TemporaryDirectory(prefix="mallorn-keys-") as folder:
        model = Path(folder, f"{network}.onnx")
        model.write_bytes(NETWORKS[network](0).SerializeToString(deterministic=True))
        found = extract(str(model), parsed.text, stored_recipe(recipe_for(recipe, parsed)), {})
    return {task.key: task.weight for task in found.tasks}


def differences(networks: Iterable[str], frozen: Mapping[str, Mapping[str, Keys]]) -> list[str]:
    """A line for each network and target whose tasks are others than they were."""
    lines = []
    for network in networks:
        for target in TARGETS:
            now, then = task_keys(network, target), frozen[network][target]
            if now != then:
                gone, new = len(then.keys() - now.keys()), len(now.keys() - then.keys())
                lines.append(f"{network} on {target}: {gone} tasks gone, {new} new")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help="freeze what is made now")
    parser.add_argument("--networks", default=",".join(NETWORKS), help="comma-separated names")
    options = parser.parse_args()
    networks = options.networks.split(",")
    if options.write:
        keys = {name: {target: task_keys(name, target) for target in TARGETS} for name in networks}
        FROZEN.write_text(json.dumps(keys, indent=0, sort_keys=True) + "\n")
        return 0
    changed = differences(networks, json.loads(FROZEN.read_text()))
    print("\n".join(changed) or f"tasks of {len(networks)} networks are as they were")
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
