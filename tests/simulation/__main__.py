"""Runs seeds, one, or the planted bugs; prints what fails, shrunk, with the command that replays it."""

import argparse
import sys

from tests.simulation.campaign import DATABASES, campaign, opened
from tests.simulation.world import Scenario, simulate


def main() -> int:
    arguments = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    arguments.add_argument("--seeds", type=int, default=1000, help="How many.")
    arguments.add_argument("--first", type=int, default=0, help="The first of them.")
    arguments.add_argument("--seed", type=int, help="Run this one alone, and print its history.")
    arguments.add_argument("--faults", help="Only these of its faults, by place: 0,3 or none.")
    arguments.add_argument("--bugs", action="store_true", help="Plant one bug after another, and find it.")
    arguments.add_argument("--database", choices=sorted(DATABASES), default="sqlite", help="On which.")
    asked = arguments.parse_args()
    if asked.seed is None:
        return campaign(asked.first, asked.seeds, asked.bugs, asked.database)
    only = None if asked.faults is None else [int(each) for each in asked.faults.split(",") if each.isdigit()]
    return _one(Scenario.of(asked.seed, only), asked.database)


def _one(scenario: Scenario, database: str) -> int:
    with opened(database) as storage:
        outcome = simulate(storage, scenario)
    for fault in scenario.faults:
        print(f"fault: {fault}")
    for entry in outcome.history.entries:
        print(entry)
    print(f"history {outcome.digest[:16]}, {len(outcome.history.entries)} entries")
    for words in outcome.broken:
        print(f"BROKEN: {words}")
    return 1 if outcome.broken else 0


if __name__ == "__main__":
    sys.exit(main())
