"""Import broken models and count the outcomes.   python -m benchmarks.mutants [--json FILE]"""

import argparse
import json
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Final

from benchmarks.hosts import describe_host
from benchmarks.mutant_files import mutant
from mallorn.core.errors import InvalidModel
from mallorn.workers.interfaces.model_compiler import ModelCompiler
from mallorn.workers.subprocesses.errors import ChildCrashed, ChildError, ChildTimeout
from mallorn.workers.tvm.network.graph_recipes import TUNED

TARGET: Final = '{"kind":"llvm","mcpu":"haswell","num-cores":2}'
LIMIT_SEC: Final = 60.0
MEMORY_BYTES: Final = 8 << 30


def ending(graphs: ModelCompiler, data: bytes, folder: Path) -> tuple[str, str]:
    """Import these bytes; return the outcome and its message."""
    path = folder / "model.onnx"
    path.write_bytes(data)
    try:
        model = graphs.extract.call_with_limit(LIMIT_SEC, str(path), TARGET, TUNED, {})
    except InvalidModel as error:
        return "refused", error.message
    except ChildTimeout as error:
        return "late", error.message
    except ChildCrashed as error:
        return "crashed", error.message
    except ChildError as error:
        return "failed", error.message
    return "imported", f"{len(model.tasks)} tasks"


def main() -> None:
    """Print the imports that end badly, and the number of each outcome."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    ends, longest_sec = Counter[str](), 0.0
    with tempfile.TemporaryDirectory() as folder, ModelCompiler(memory_bytes=MEMORY_BYTES) as graphs:
        for number in range(args.first, args.first + args.count):
            started_sec = time.monotonic()
            outcome, message = ending(graphs, mutant(number), Path(folder))
            seconds = time.monotonic() - started_sec
            ends[outcome] += 1
            longest_sec = max(longest_sec, seconds)
            if outcome not in ("imported", "refused"):
                print(f"{number}: {outcome} after {seconds:.1f} s: {message[:300]}", flush=True)
    bad = sum(count for outcome, count in ends.items() if outcome not in ("imported", "refused"))
    raw = {"headline": f"{bad} of {args.count} crashed or hung", "first": args.first, "ends": dict(ends)}
    raw["longest_sec"] = round(longest_sec, 1)
    if args.json:
        args.json.write_text(json.dumps(raw | describe_host(), indent=1) + "\n")
    print(raw["headline"], ends)


if __name__ == "__main__":
    main()
