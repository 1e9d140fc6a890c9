"""What can go wrong in a run, how likely it is, and for how long it lasts."""

from enum import StrEnum
from typing import Final


class Kind(StrEnum):
    """What can go wrong, or be asked for at a bad moment."""

    # Processes
    KILL = "kill"  # a process dies at its `count`-th step from now, and is started again `sec` later
    STALL = "stall"  # a process stands still for `sec`
    SKEW = "skew"  # a process's wall clock is `sec` ahead, up to five minutes either way
    SICK = "sick"  # a worker's host has no linker for `sec`: every round fails there, at once
    FULL = "full"  # a worker's disk is full for `sec`
    NEWER = "newer"  # a process is one version newer: what it writes has keys that the others do not know
    OLDER = "older"  # a process is one version older: what it writes lacks what is as usual
    # The database
    STATEMENT = "statement"  # the `count`-th statement of a process is not answered
    SILENCE = (
        "silence"  # the `count`-th commit of a process that more than renews is applied, and not answered
    )
    OUTAGE = "outage"  # the database is away for `sec`
    JUMP = "jump"  # the database's clock jumps by `sec`
    FAILOVER = "failover"  # it is away for `sec`, comes back with another clock, and cannot be written yet
    RESTORE = "restore"  # `sec` from now the database is what it is now, whoever works meanwhile
    # Messages, and the store
    LOSE = "lose"  # the next `count` messages are lost
    TWICE = "twice"  # the next `count` messages come twice
    LATE = "late"  # the next `count` messages come up to `sec` late, in any order
    FLUSH = "flush"  # all messages that wait are gone
    STORE = "store"  # the artifact store is away for `sec`
    # Devices
    VANISH = "vanish"  # a device is away for `sec`
    SLOW = "slow"  # a device needs far longer for `sec`
    LIE = "lie"  # a device computes nonsense for `sec`
    REPEAT = "repeat"  # a device answers everything twice for `sec`
    BOAST = "boast"  # a device tells nonsense of itself for `sec`: the `count`-th
    OTHER = "other"  # the last device is of another class from now on, under the same target
    # Owners
    PAUSE = "pause"  # an owner pauses a job, and resumes it `sec` later
    CANCEL = "cancel"  # an owner cancels a job
    RAISE = "raise"  # a third owner submits a job whose planning raises: in the `count`-th way


#: After which a holder may be taken for dead, rightly or not.
COSTS_LEASES: Final = frozenset(
    {Kind.KILL, Kind.STALL, Kind.STATEMENT, Kind.SILENCE, Kind.OUTAGE, Kind.JUMP, Kind.FAILOVER}
)
#: What is so from the start as often as it comes about.
INSTALLED: Final = frozenset({Kind.SKEW, Kind.NEWER, Kind.OLDER, Kind.OTHER})
LIKELY: Final = {
    Kind.KILL: 6.0,
    Kind.STALL: 6.0,
    Kind.STATEMENT: 3.0,
    Kind.SILENCE: 6.0,
    Kind.LOSE: 3.0,
    Kind.CANCEL: 0.5,
    Kind.RESTORE: 8.0,
    Kind.SKEW: 2.0,
    Kind.SICK: 2.0,
    Kind.BOAST: 2.0,
    Kind.OTHER: 2.0,
}
#: What the product does not bear yet; each goes with its mend.
UNMENDED: Final[frozenset[Kind]] = frozenset()
LONGEST_SEC: Final = {
    Kind.OUTAGE: 15.0,
    Kind.LATE: 40.0,
    Kind.PAUSE: 20.0,
    Kind.KILL: 30.0,
    Kind.STALL: 40.0,  # so that some of those who wake find others at their work
    Kind.FAILOVER: 15.0,
    Kind.RESTORE: 20.0,
    Kind.STORE: 240.0,
}
#: Clocks that differ: so far, forwards and back.
APART_SEC: Final = {Kind.JUMP: 90.0, Kind.SKEW: 300.0}
