"""Faults, drawn from a seed before the run begins: any of them can be left out of another run."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Final


class Kind(StrEnum):
    """What can go wrong, or be asked for at a bad moment."""

    KILL = "kill"  # a process dies at its `count`-th step from now, and is started again `sec` later
    STALL = "stall"  # a process stands still for `sec`
    STATEMENT = "statement"  # the `count`-th statement of a process is not answered
    SILENCE = "silence"  # the `count`-th commit of a process is applied, and not answered
    OUTAGE = "outage"  # the database is away for `sec`
    JUMP = "jump"  # the database's clock jumps by `sec`
    LOSE = "lose"  # the next `count` messages are lost
    TWICE = "twice"  # the next `count` messages come twice
    LATE = "late"  # the next `count` messages come up to `sec` late, in any order
    FLUSH = "flush"  # all messages that wait are gone
    VANISH = "vanish"  # a device is away for `sec`
    SLOW = "slow"  # a device needs far longer for `sec`
    LIE = "lie"  # a device computes nonsense for `sec`
    REPEAT = "repeat"  # a device answers everything twice for `sec`
    PAUSE = "pause"  # an owner pauses a job, and resumes it `sec` later
    CANCEL = "cancel"  # an owner cancels a job


#: After which a holder may be taken for dead, rightly or not.
COSTS_LEASES: Final = frozenset({Kind.KILL, Kind.STALL, Kind.STATEMENT, Kind.SILENCE, Kind.OUTAGE, Kind.JUMP})
LIKELY: Final = {
    Kind.KILL: 6,
    Kind.STALL: 6,
    Kind.STATEMENT: 3,
    Kind.SILENCE: 3,
    Kind.LOSE: 3,
    Kind.CANCEL: 0.5,
}
LONGEST_SEC: Final = {
    Kind.OUTAGE: 15.0,
    Kind.LATE: 40.0,
    Kind.PAUSE: 20.0,
    Kind.KILL: 30.0,
    Kind.STALL: 40.0,  # so that some of those who wake find others at their work
}
MOST: Final = 9
WITHIN_SEC: Final = 50.0


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
    kinds = list(Kind)
    weights = [LIKELY.get(kind, 1.0) for kind in kinds]
    drawn = [_fault(random, kind) for kind in random.choices(kinds, weights, k=random.randint(1, MOST))]
    return tuple(sorted(drawn, key=lambda fault: fault.at_sec))


def _fault(random: Random, kind: Kind) -> Fault:
    sec = random.uniform(-90, 90) if kind is Kind.JUMP else random.uniform(0.5, LONGEST_SEC.get(kind, 60.0))
    # Most of what matters happens early: a quiet run is over in seconds.
    at_sec = WITHIN_SEC * random.random() ** 2
    return Fault(kind, at_sec, random.randrange(840), sec, random.randint(1, 60 if kind is Kind.KILL else 6))


def costs_leases(faults: Sequence[Fault]) -> int:
    """How many of them may cost somebody a lease."""
    return sum(fault.kind in COSTS_LEASES for fault in faults)
