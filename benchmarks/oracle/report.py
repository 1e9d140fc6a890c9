"""What the oracle says of guesses and searches: tables, a headline, and a file with all raw figures."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.hosts import describe_host
from benchmarks.oracle.gaps import GAPS, Gaps, gaps_of, geometric

FAR = 1.25  # times the oracle's time


def report(data: Path, out: Path | None, measured: bool = True) -> None:
    """Print all tables and the headline; keep them with the raw figures. Gaps are times over the oracle's.

    Tasks with a single candidate are in no mean. What was measured earlier keeps the host of that time.
    """
    found = [gaps_of(path) for path in sorted(data.glob("*.json"))]
    chosen = [each for each in found if each.candidates > 1]
    named = [((each.model, each.op, each.kind, str(each.candidates)), each.figures) for each in found]
    targets = guesses_by_target(chosen)
    print("\n".join(_table(("model", "operator", "target", "candidates"), named)))
    print("\n".join(_table(("target", "tasks"), list(_by_target(chosen)))))
    print("\n".join(_guess_table(targets)))
    headline = geometric(each.first_us / each.oracle_us for each in chosen)
    print(f"first guess over the oracle, geometric mean: {headline:.3f}")
    if out is not None:
        host = describe_host()
        if not measured and out.exists():
            host = {key: value for key, value in json.loads(out.read_text()).items() if key in host}
        figures = {"headline": headline, "targets": targets, "tasks": [asdict(each) for each in found]}
        out.write_text(json.dumps(figures | host) + "\n")


def guesses_by_target(found: Sequence[Gaps]) -> dict[str, dict[str, Any]]:
    """Of each target the first guess and the best of three: mean, worst task, and how many are far off."""
    return {
        kind: {name: _distances(found, kind, at) for at, name in enumerate(GAPS[:2])}
        for kind in dict.fromkeys(each.kind for each in found)
    }


def _distances(found: Sequence[Gaps], kind: str, at: int) -> dict[str, Any]:
    named = [(each.figures[at], f"{each.model}, {each.op}") for each in found if each.kind == kind]
    worst, task = max(named)
    return {
        "mean": geometric(over for over, _ in named),
        "worst": worst,
        "worst task": task,
        f"beyond {FAR}": sum(over > FAR for over, _ in named),
        "tasks": len(named),
    }


def _guess_table(targets: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Iterator[str]:
    yield f"| target | | mean | worst | of | beyond {FAR} | tasks |"
    yield "|---" * 7 + "|"
    for kind, guesses in targets.items():
        for name, known in guesses.items():
            cells = (f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in known.values())
            yield f"| {kind} | {name} | " + " | ".join(cells) + " |"


def _by_target(found: Sequence[Gaps]) -> Iterator[tuple[tuple[str, str], tuple[float, ...]]]:
    """Geometric means over the tasks of each target."""
    for kind in dict.fromkeys(each.kind for each in found):
        rows = [each.figures for each in found if each.kind == kind]
        yield (kind, str(len(rows))), tuple(map(geometric, zip(*rows, strict=True)))


def _table(names: Sequence[str], rows: Sequence[tuple[Sequence[str], Sequence[float]]]) -> Iterator[str]:
    yield "| " + " | ".join((*names, *GAPS)) + " |"
    yield "|---" * (len(names) + len(GAPS)) + "|"
    for known, figures in rows:
        yield "| " + " | ".join((*known, *(f"{figure:.3f}" for figure in figures))) + " |"
