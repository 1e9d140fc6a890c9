"""The stages of `make test`, one after another: what fails hides nothing that comes after it.

    python -m tests.stages {test,test-all} STAGE...

A stage that takes a quarter more than its budget (`tests/budgets.toml`) is named with its slowest tests. It
fails nothing, as machines differ.
"""

import json
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

BUDGETS: Final = Path(__file__).parent / "budgets.toml"
BUILD: Final = Path(__file__).parents[1] / "build"
SUMMARY: Final = BUILD / "tests-told.json"
LEFT_OUT: Final = BUILD / "left-out"
OVER: Final = 1.25


@dataclass(frozen=True)
class Ended:
    """A stage that has ended, and what its tests say of themselves."""

    name: str
    failed: bool
    seconds: float
    budget_sec: float | None
    tests: Mapping[str, Any]
    left_out: Sequence[str]

    @property
    def numbers(self) -> dict[str, int]:
        return dict(self.tests.get("numbers", {}))

    @property
    def line(self) -> str:
        how = "failed" if self.failed else "ok"
        budget = "" if self.budget_sec is None else f"of {self.budget_sec:g} s"
        told = [f"{number:,} {how}" for how, number in self.numbers.items()]
        told += [f"left out: {name}" for name in self.left_out]
        return f"{how:<7} {self.name:<16} {self.seconds:5.0f} s {budget:<9} {', '.join(told)}".rstrip()

    def over(self) -> Iterator[str]:
        """What passed its budget, and by which tests."""
        if self.budget_sec is not None and self.seconds > OVER * self.budget_sec:
            yield f"{self.name} took {self.seconds:.0f} s, and its budget is {self.budget_sec:g} s"
            yield from (f"  {seconds:5.0f} s  {test}" for seconds, test in self.tests.get("slowest", ()))


def run(name: str, budget_sec: float | None) -> Ended:
    print(f"== {name}", flush=True)
    for told in (SUMMARY, LEFT_OUT):
        told.unlink(missing_ok=True)
    began = time.monotonic()
    failed = subprocess.call(["make", "--no-print-directory", name]) != 0
    seconds = time.monotonic() - began
    tests = json.loads(SUMMARY.read_text()) if SUMMARY.exists() else {}
    left_out = LEFT_OUT.read_text().split() if LEFT_OUT.exists() else []
    return Ended(name, failed, seconds, budget_sec, tests, left_out)


def summary(target: str, stages: Sequence[Ended]) -> Iterator[str]:
    """The last lines of `make test`."""
    yield "== all"
    yield from (stage.line for stage in stages)
    yield from (line for stage in stages for line in stage.over())
    numbers: Counter[str] = sum((Counter(stage.numbers) for stage in stages), Counter())
    failed = numbers["failed"] + numbers["error"]
    yield f"{numbers['passed']} passed, {failed} failed, {numbers['skipped']} skipped"
    yield f"make {target} took {sum(stage.seconds for stage in stages):.0f} s"


def main(target: str, *names: str) -> int:
    budgets = tomllib.loads(BUDGETS.read_text())[target]
    stages = [run(name, budgets.get(name)) for name in names]
    print(*summary(target, stages), sep="\n")
    return int(any(stage.failed for stage in stages))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
