"""Faults, drawn from a seed before the run begins: any of them can be left out of another run."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from tests.simulation.kinds import APART_SEC, COSTS_LEASES, INSTALLED, LIKELY, LONGEST_SEC, UNMENDED, Kind

MOST: Final = 10
WITHIN_SEC: Final = 50.0
FROM_THE_START: Final = 0.5
WHOEVER: Final = 840  # as many can be told apart by two, three, four, five, six, seven or eight


@dataclass(frozen=True, slots=True)
class Fault:
    """One of them: when, to whom, and how much of it."""

    kind: Kind
    at_sec: float
    who: int
    sec: float
    count: int

    def __str__(self) -> str:
        return f"{self.kind} at {self.at_sec:.1f} s, who {self.who}, {self.sec:.1f} s, count {self.count}"


def draw(seed: int) -> tuple[Fault, ...]:
    """The faults of a seed, by their time."""
    random = Random(f"weather {seed}")
    kinds = [kind for kind in Kind if kind not in UNMENDED]
    weights = [LIKELY.get(kind, 1.0) for kind in kinds]
    drawn = [_fault(random, kind) for kind in random.choices(kinds, weights, k=random.randint(1, MOST))]
    return tuple(sorted(drawn, key=lambda fault: fault.at_sec))


def _fault(random: Random, kind: Kind) -> Fault:
    apart_sec = APART_SEC.get(kind)
    sec = (
        random.uniform(0.5, LONGEST_SEC.get(kind, 60.0))
        if apart_sec is None
        else random.uniform(-apart_sec, apart_sec)
    )
    # Most of what matters happens early: a quiet run is over in seconds.
    at_sec = WITHIN_SEC * random.random() ** 2
    if kind in INSTALLED and random.random() < FROM_THE_START:
        at_sec = 0.0
    count = random.randint(1, 60 if kind is Kind.KILL else 6)
    return Fault(kind, at_sec, random.randrange(WHOEVER), sec, count)


def costs_leases(faults: Sequence[Fault]) -> int:
    """How many of them may cost somebody a lease."""
    return sum(fault.kind in COSTS_LEASES for fault in faults)


def hosts_of(faults: Sequence[Fault], kind: Kind, hosts: int) -> set[int]:
    """Which of so many hosts a kind befalls."""
    return {fault.who % hosts for fault in faults if fault.kind is kind}
