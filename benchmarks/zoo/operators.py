"""ONNX's own cases of each operator: imported, compiled without schedules, compared with what they give.

python -m benchmarks.zoo.operators [OPERATOR ...] [--json FILE]

The headline is the share of cases that come in and are right. A case whose sizes are inputs, which no
exporter writes, is tried with constants in their place. A case that ends its process is a crash. What is not
right is printed.
"""

import argparse
import json
from collections import Counter, defaultdict
from dataclasses import asdict
from pathlib import Path

from benchmarks.hosts import describe_host
from benchmarks.zoo.cases import cases
from benchmarks.zoo.trying import Answer, Trying
from mallorn.workers.subprocesses.errors import ChildError, ChildFailed

CHARS = 160


def main() -> None:
    """Try them, and print those that are not right."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("operators", nargs="*", metavar="OPERATOR", help="all, if none is named")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    chosen = [name for name, case in cases().items() if not args.operators or case.operator in args.operators]
    answers: dict[str, Answer] = {}
    with Trying() as child:
        for name in chosen:
            answers[name] = answer = _asked(child, name)
            if answer.outcome != "right":
                print(
                    f"{cases()[name].operator} {name}: {answer.outcome}: {answer.message[:CHARS]}", flush=True
                )
    counts = Counter(answer.outcome for answer in answers.values())
    print(f"{counts['right']} of {len(answers)} cases come in and are right", dict(counts))
    if args.json is not None:
        known = {
            "cases": {name: asdict(answer) for name, answer in answers.items()},
            "operators": _by_operator(answers),
        }
        args.json.write_text(json.dumps(known | describe_host(), indent=1) + "\n")


def _asked(child: Trying, name: str) -> Answer:
    try:
        return child.try_case(name)
    except ChildFailed as error:
        return Answer("failed", error.message)
    except ChildError as error:
        return Answer("crashed", error.message)


def _by_operator(answers: dict[str, Answer]) -> dict[str, dict[str, int]]:
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for name, answer in answers.items():
        found[cases()[name].operator][answer.outcome] += 1
    return {operator: dict(found[operator]) for operator in sorted(found)}


if __name__ == "__main__":
    main()
