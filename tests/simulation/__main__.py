"""Runs seeds, one, or the planted bugs; prints what fails, shrunk, with the command that replays it."""

import argparse
import sys

from tests.simulation.campaign import campaign
from tests.simulation.storage import Storage
from tests.simulation.world import Scenario, simulate


def main() -> int:
    arguments = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    arguments.add_argument("--seeds", type=int, default=1000, help="How many.")
    arguments.add_argument("--first", type=int, default=0, help="The first of them.")
    arguments.add_argument("--seed", type=int, help="Run this one alone, and print its history.")
    arguments.add_argument("--faults", help="Only these of its faults, by place: 0,3 or none.")
    arguments.add_argument("--bugs", action="store_true", help="Plant one bug after another, and find it.")
    asked = arguments.parse_args()
    if asked.seed is None:
        return campaign(asked.first, asked.seeds, asked.bugs)
    only = None if asked.faults is None else [int(each) for each in asked.faults.split(",") if each.isdigit()]
    return _one(Scenario.of(asked.seed, only))


def _one(scenario: Scenario) -> int:
    storage = Storage()
    try:
        outcome = simulate(storage, scenario)
    finally:
        storage.close()
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
