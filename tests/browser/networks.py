"""What the importer finds in the networks of the recorded tunings.

`networks.json` is written by   python -m tests.browser.networks DIR   where DIR holds what
`python examples/build.py mlp resnet18 bert-small -o DIR` built: the page's tests need no TVM then.
"""

import json
import sys
from pathlib import Path
from typing import Any, Final

from mallorn.core.targets import parse_target
from tests.browser.recorded import MODELS, recording

FILE: Final = Path(__file__).with_name("networks.json")
OF_A_TASK: Final = ("key", "name", "op", "structure", "flops", "weight")
OF_A_GRAPH: Final = ("operators_before", "operators_after", "steps")


def network(model: str) -> dict[str, Any]:
    """Its `tasks` in the importer's order, and its `graph` before and after the passes."""
    found: dict[str, Any] = json.loads(FILE.read_text())[model]
    return found


def main(folder: Path) -> None:
    """Import the networks anew."""
    found = {model: _imported(folder / f"{model}.onnx", recording(model).target) for model in MODELS}
    FILE.write_text(json.dumps(found, indent=1) + "\n")


def _imported(file: Path, target: dict[str, Any]) -> dict[str, Any]:
    from mallorn.workers.tvm.network.extract_tasks import extract
    from mallorn.workers.tvm.network.graph_recipes import TUNED

    found = extract(str(file), parse_target(target).text, TUNED, {})
    graph = found.graph.to_stored_json()
    return {
        "tasks": [{name: getattr(task, name) for name in OF_A_TASK} for task in found.tasks],
        "graph": {name: graph[name] for name in OF_A_GRAPH},
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
