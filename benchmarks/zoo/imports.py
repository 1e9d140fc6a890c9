"""Which networks of a folder come in: imported and cut into tasks, each in a child of its own.

python -m benchmarks.zoo.imports FOLDER [NAME ...] [--seconds 600] [--json FILE]

The headline is how many do.
"""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.hosts import describe_host
from benchmarks.model_folder import files_of, folder_parser
from mallorn.core.errors import MallornError
from mallorn.core.targets import Target
from mallorn.workers.device.detect_host import detect_target
from mallorn.workers.interfaces.model_compiler import ModelCompiler
from mallorn.workers.tvm.network.graph_recipes import recipe_for

SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Import:
    """What became of a file."""

    name: str
    seconds: float
    nodes: int = 0
    tasks: int = 0
    refused: str = ""


def main() -> None:
    """Import them one after the other."""
    parser = folder_parser(__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="an import may take")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    files = list(files_of(args))
    target, found = detect_target(), []
    for path in files:
        found.append(_imported(path, target, args.seconds))
        print(json.dumps(asdict(found[-1])), flush=True)
    print(f"{sum(not each.refused for each in found)} of {len(found)} come in")
    if args.json is not None:
        known = {"networks": [asdict(each) for each in found]} | describe_host()
        args.json.write_text(json.dumps(known, indent=1) + "\n")


def _imported(path: Path, target: Target, seconds: float) -> Import:
    recipe, started = recipe_for("tuned", target), time.monotonic()
    try:
        with ModelCompiler() as child:
            answer = child.extract.call_with_limit(seconds, str(path), target.text, recipe, {})
    except MallornError as error:
        return Import(path.stem, round(time.monotonic() - started, 1), refused=error.message)
    nodes = sum(answer.graph.onnx_operators.values())
    return Import(path.stem, round(time.monotonic() - started, 1), nodes, len(answer.tasks))


if __name__ == "__main__":
    main()
