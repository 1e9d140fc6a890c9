"""Turn measurements into training data: labels, and a sample of bounded size."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mallorn.core.errors import InvalidRequest
from mallorn.core.outcomes import Outcome
from mallorn.costmodels.base import FAILED_LABEL, LATE_LABEL, Groups, Indices, Vector

# Outcomes that say nothing about the candidate.
UNINFORMATIVE = frozenset({Outcome.WORKER_LOST, Outcome.CANCELLED, Outcome.NOT_RECORDED, Outcome.WITHDRAWN})


def is_informative(outcomes: Sequence[Outcome]) -> NDArray[np.bool_]:
    """Return a mask of the outcomes that say something about speed, for training."""
    return np.array([outcome not in UNINFORMATIVE for outcome in outcomes], dtype=np.bool_)


def labels(latencies_us: Sequence[float | None], groups: Groups, outcomes: Sequence[Outcome]) -> Vector:
    """Return log(best latency of the group / latency), or FAILED_LABEL for failures.

    A run that timed out gets LATE_LABEL; a build that timed out is a failure, since it
    never ran. Raises InvalidRequest if a time is not positive and finite.
    """
    pairs = zip(latencies_us, outcomes, strict=True)
    wrong = [us for us, outcome in pairs if outcome is Outcome.OK and us is not None and not 0 < us < np.inf]
    if wrong:
        raise InvalidRequest(
            f"{len(wrong)} of {len(latencies_us)} times are not positive: the first is {wrong[0]:g} us",
            hint="leave these measurements out, or store them as failures",
        )
    is_ok = np.array([outcome is Outcome.OK for outcome in outcomes], dtype=np.bool_)
    logs = np.array([np.log(us) if us and ok else np.inf for us, ok in zip(latencies_us, is_ok, strict=True)])
    _, group_of = np.unique(groups, return_inverse=True)
    best = np.full(group_of.max(initial=-1) + 1, np.inf)
    np.minimum.at(best, group_of, logs)
    late = np.array([outcome is Outcome.RUN_TIMEOUT for outcome in outcomes], dtype=np.bool_)
    answer = np.where(late, LATE_LABEL, FAILED_LABEL).astype(np.float32)
    answer[is_ok] = clip_time_labels(best[group_of[is_ok]] - logs[is_ok])
    return answer


def clip_time_labels(label: NDArray[np.floating[Any]]) -> Vector:
    """Return labels of times, kept above FAILED_LABEL and different from LATE_LABEL."""
    answer = np.maximum(label.astype(np.float32), _just_above(FAILED_LABEL))
    return np.where(answer == LATE_LABEL, _just_above(LATE_LABEL), answer).astype(np.float32)


def is_time_label(label: Vector) -> NDArray[np.bool_]:
    """Return a mask of the labels that come from a time: neither failed nor timed out."""
    return np.asarray((label > FAILED_LABEL) & (label != LATE_LABEL))


def _just_above(label: float) -> np.float32:
    return np.float32(np.nextafter(np.float32(label), np.float32(0)))


def bounded_sample(label: Vector, limit: int, *, seed: int) -> Indices:
    """Return at most `limit` row indices to train on: the newest, the best, and random others.

    Each kind gets a third. `label` and the result are ordered from oldest to newest. The
    limit bounds the time of a refit.
    """
    total = len(label)
    if total <= limit:
        return np.arange(total, dtype=np.int64)
    recent = np.arange(total - limit // 3, total)
    older = np.arange(total - limit // 3)
    by_speed = older[np.argsort(-label[older], kind="stable")]
    best, slower = by_speed[: limit // 3], by_speed[limit // 3 :]
    sample = np.random.default_rng(seed).choice(slower, size=limit - 2 * (limit // 3), replace=False)
    return np.sort(np.concatenate([recent, best, sample])).astype(np.int64)
