"""From measurements to training data: labels, and a sample that stays small while the dataset grows."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodels.base import FAILED_LABEL, LATE_LABEL, Groups, Indices, Vector
from mallorn.core.errors import InvalidRequest
from mallorn.core.outcomes import Outcome

# These say nothing about the candidate.
UNINFORMATIVE = frozenset({Outcome.WORKER_LOST, Outcome.CANCELLED, Outcome.NOT_RECORDED, Outcome.WITHDRAWN})


def informative(outcomes: Sequence[Outcome]) -> NDArray[np.bool_]:
    """Which measurements a model may learn from."""
    return np.array([outcome not in UNINFORMATIVE for outcome in outcomes], dtype=np.bool_)


def labels(latencies_us: Sequence[float | None], groups: Groups, outcomes: Sequence[Outcome]) -> Vector:
    """log(best latency of the group / latency); failures carry FAILED_LABEL, and all else lies above.

    A run that was cut off is no failure: it is at least LATE_LABEL slow. A build that was never ran.
    """
    timed = zip(latencies_us, outcomes, strict=True)
    wrong = [us for us, outcome in timed if outcome is Outcome.OK and us is not None and not 0 < us < np.inf]
    if wrong:
        raise InvalidRequest(
            f"{len(wrong)} of {len(latencies_us)} times are not positive: the first is {wrong[0]:g} us",
            hint="leave these measurements out, or store them as failures",
        )
    known = np.array([outcome is Outcome.OK for outcome in outcomes], dtype=np.bool_)
    logs = np.array([np.log(us) if us and ok else np.inf for us, ok in zip(latencies_us, known, strict=True)])
    _, group_of = np.unique(groups, return_inverse=True)
    best = np.full(group_of.max(initial=-1) + 1, np.inf)
    np.minimum.at(best, group_of, logs)
    late = np.array([outcome is Outcome.RUN_TIMEOUT for outcome in outcomes], dtype=np.bool_)
    answer = np.where(late, LATE_LABEL, FAILED_LABEL).astype(np.float32)
    answer[known] = of_times(best[group_of[known]] - logs[known])
    return answer


def of_times(label: NDArray[np.floating[Any]]) -> Vector:
    """Labels of times: the least change keeps them off the two labels that say there is no time."""
    answer = np.maximum(label.astype(np.float32), _just_above(FAILED_LABEL))
    return np.where(answer == LATE_LABEL, _just_above(LATE_LABEL), answer).astype(np.float32)


def timed(label: Vector) -> NDArray[np.bool_]:
    """Which labels come from a time: neither failed nor cut off."""
    return np.asarray((label > FAILED_LABEL) & (label != LATE_LABEL))


def _just_above(label: float) -> np.float32:
    return np.float32(np.nextafter(np.float32(label), np.float32(0)))


def bounded_sample(label: Vector, limit: int, *, seed: int) -> Indices:
    """Rows to train on, oldest first: the newest third of `limit`, the best third, and a draw from the rest.

    Rows are given in the order they were measured. The sample never exceeds `limit`, so a refit costs the
    same however long the job runs.
    """
    total = len(label)
    if total <= limit:
        return np.arange(total, dtype=np.int64)
    recent = np.arange(total - limit // 3, total)
    older = np.arange(total - limit // 3)
    ranked = older[np.argsort(-label[older], kind="stable")]
    best, rest = ranked[: limit // 3], ranked[limit // 3 :]
    drawn = np.random.default_rng(seed).choice(rest, size=limit - 2 * (limit // 3), replace=False)
    return np.sort(np.concatenate([recent, best, drawn])).astype(np.int64)
