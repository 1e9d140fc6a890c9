"""What an error says about the work that it ended: all rules of trying again stand here."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from db.repositories.claim_and_release_work import WorkItems
from db.repositories.leases import LeaseToken
from mallorn.core.errors import (
    HostFault,
    LeaseLost,
    MallornError,
    PluginFailed,
    StorageFull,
    StoreAway,
    Unavailable,
    UnknownName,
    Unschedulable,
)
from mallorn.core.states import WorkKind
from workers.process.time_slice import TimeSliceOver
from workers.subprocesses.errors import ChildCrashed, ChildFailed, ChildKilled, ChildTimeout
from workers.subprocesses.shutdown import ShutdownRequested

PROPOSING: Final = ("search", "sampler", "cost_model")


@dataclass(frozen=True, slots=True)
class RetryRule:
    """What becomes of the work, and how the log says it."""

    told: str
    act: Callable[[WorkItems, LeaseToken, MallornError], object] | None
    level: int = logging.ERROR


TAKEN: Final = RetryRule("was taken back", None, logging.WARNING)
# Nobody is to blame: time, an operator or another worker mends it.
GIVEN_BACK: Final = RetryRule("goes back to the queue", WorkItems.give_back, logging.WARNING)
NEXT: Final = RetryRule("lets others have their turn", WorkItems.give_back, logging.INFO)
LATER: Final = RetryRule("waits for the artifact store", WorkItems.put_off, logging.WARNING)
OTHER_HOST: Final = RetryRule("is left to another host", WorkItems.leave_to_another_host, logging.WARNING)
# Somebody else did it: as often as silent workers are forgiven.
CUT_SHORT: Final = RetryRule("was cut short", WorkItems.die, logging.WARNING)
# It may have been chance: three times in all.
TRIED_AGAIN: Final = RetryRule("broke off", WorkItems.lose)
# It will be so however often it is tried.
GIVEN_UP: Final = RetryRule("is given up", WorkItems.give_up)
# Nothing of the job can be done as it was asked for.
FAILED: Final = RetryRule("fails its job", WorkItems.fail)

# The first that an error is one of. What is not listed its user has to change.
RULES: Final[tuple[tuple[type[MallornError], RetryRule], ...]] = (
    (ShutdownRequested, GIVEN_BACK),
    (TimeSliceOver, NEXT),
    (LeaseLost, TAKEN),
    (HostFault, OTHER_HOST),
    (StoreAway, LATER),
    (Unavailable, GIVEN_BACK),
    (StorageFull, GIVEN_BACK),
    (UnknownName, GIVEN_BACK),  # a worker of another version knows it
    (ChildKilled, CUT_SHORT),
    (ChildCrashed, TRIED_AGAIN),
    (ChildTimeout, TRIED_AGAIN),
    (Unschedulable, GIVEN_UP),
    (MallornError, FAILED),
)


def retry_rule_for(error: MallornError, kind: WorkKind) -> RetryRule:
    if kind is WorkKind.ROUND:
        # TVM failed at the workload, whatever the candidate; or another worker may have what this one lacks.
        chance = isinstance(error, PluginFailed) and error.seam in PROPOSING
        if chance or isinstance(error, ChildFailed):
            return TRIED_AGAIN
    return next(rule for known, rule in RULES if isinstance(error, known))
