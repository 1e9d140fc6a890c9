"""Retry rules: whether failed work is retried, requeued, given up or fails its job."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from mallorn.core import errors
from mallorn.core.states import WorkKind
from mallorn.db.repositories.claim_and_release_work import WorkItems
from mallorn.db.repositories.leases import MAX_DEATHS, LeaseToken
from mallorn.workers.process.time_slice import TimeSliceOver
from mallorn.workers.subprocesses.errors import ChildCrashed, ChildFailed, ChildKilled, ChildTimeout
from mallorn.workers.subprocesses.shutdown import ShutdownRequested

PROPOSING: Final = ("search", "sampler", "cost_model")


@dataclass(frozen=True, slots=True)
class RetryRule:
    """An action that releases work after an error, and its description in the log."""

    words: str
    act: Callable[[WorkItems, LeaseToken, errors.MallornError], object] | None
    level: int = logging.ERROR


def _returned(words: str, delay_sec: float, level: int = logging.WARNING) -> RetryRule:
    """Return the rule for work that is given back through nobody's fault."""
    return RetryRule(words, partial(WorkItems.return_work, delay_sec=delay_sec), level)


TAKEN: Final = RetryRule("was taken back", None, logging.WARNING)
AT_ONCE: Final = _returned("goes back to the queue", 0.0)
# Time, an operator or another worker solves the problem.
GIVEN_BACK: Final = _returned("goes back to the queue", 5.0)
NEXT: Final = _returned("lets others have their turn", 1.0, logging.INFO)
LATER: Final = _returned("waits for the artifact store", 20.0)
OTHER_HOST: Final = RetryRule("is left to another host", WorkItems.leave_to_another_host, logging.WARNING)
# The process was killed from outside: counted like the death of a worker (MAX_DEATHS).
CUT_SHORT: Final = RetryRule(
    "was cut short",
    partial(WorkItems.record_interruption, limit=MAX_DEATHS, is_death=True),
    logging.WARNING,
)
# May have been chance: tried three times in all (MAX_LOSSES).
TRIED_AGAIN: Final = RetryRule("broke off", WorkItems.record_interruption)
# A retry would fail in the same way.
GIVEN_UP: Final = RetryRule("is given up", WorkItems.give_up)
# The job cannot be done as the user requested it.
FAILED: Final = RetryRule("fails its job", WorkItems.fail_job_of_work)

# The first entry whose type matches applies. For all other errors the user must change the job.
RULES: Final[tuple[tuple[type[errors.MallornError], RetryRule], ...]] = (
    (ShutdownRequested, AT_ONCE),
    (TimeSliceOver, NEXT),
    (errors.LeaseLost, TAKEN),
    (errors.HostFault, OTHER_HOST),
    (errors.StoreAway, LATER),
    (errors.Unavailable, GIVEN_BACK),
    (errors.StorageFull, GIVEN_BACK),
    (errors.UnknownName, GIVEN_BACK),  # a worker of another version may know the name
    (ChildKilled, CUT_SHORT),
    (ChildCrashed, TRIED_AGAIN),
    (ChildTimeout, TRIED_AGAIN),
    (errors.Unschedulable, GIVEN_UP),
    (errors.MallornError, FAILED),
)


def retry_rule_for(error: errors.MallornError, kind: WorkKind) -> RetryRule:
    if kind is WorkKind.ROUND:
        # TVM fails at this workload for every candidate, or the plugin works on another worker.
        proposal_failed = isinstance(error, errors.PluginFailed) and error.seam in PROPOSING
        if proposal_failed or isinstance(error, ChildFailed):
            return TRIED_AGAIN
    return next(rule for error_type, rule in RULES if isinstance(error, error_type))
