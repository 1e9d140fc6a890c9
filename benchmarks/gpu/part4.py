"""Part 4: whole models after 1,000 trials each, in turn with torch."""

from collections.abc import Mapping
from pathlib import Path

from benchmarks.gpu.part2 import PART4, run_plan, take_earlier

__all__ = ["run", "take_earlier"]


def run(kind: str, home: Path, out: Path, seconds: float, environment: Mapping[str, str]) -> None:
    """Tune and time missing cells. Raises Incomplete if TVM's compiler has not arrived."""
    run_plan(PART4, kind, home, out, seconds, environment)
