"""Which of several jobs is the fastest: one figure decides, and words explain another that says otherwise."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from mallorn.core.states import JobState

MODEL, TASKS = "the whole model", "the sum over tasks"
# Sums of medians that are closer than this do not tell who is faster.
CLOSE: Final = 1.02
# Why the two figures may order jobs differently.
APART: Final = "tasks are timed alone and find their data in the caches, in the model they often do not"


@dataclass(frozen=True, slots=True)
class JobResult:
    """Where a job ended, and what it had at equal effort. None: it was not timed."""

    id: str
    name: str
    state: JobState
    target: str
    model_id: str
    options: dict[str, JsonValue]
    trials: int
    failures: int
    seconds: float | None
    model_us: float | None
    interval_us: tuple[float, float] | None
    steady: bool  # whether the host was quiet while the whole model was timed; old reports are believed
    untuned_us: float | None
    reached_us: float | None
    at_equal_trials_us: float | None
    at_equal_seconds_us: float | None


@dataclass(frozen=True, slots=True)
class Judgement:
    """`fastest` is a job's id; None where the first two are too close to tell, or nothing was timed."""

    by: str | None
    fastest: str | None
    why: str
    note: str


def judge(jobs: Sequence[JobResult]) -> Judgement:
    """The whole model decides where every job's was timed on a quiet host, else the sum over tasks."""
    doubt = _doubt(jobs)
    by, other = (TASKS, MODEL) if doubt else (MODEL, TASKS)
    known = [(time_us, job) for job in jobs if (time_us := _figure(job, by)) is not None]
    if len(known) < len(jobs):
        return Judgement(None, None, "not every job has times yet", "")
    (first_us, first), (second_us, second) = sorted(known, key=lambda each: each[0])[:2]
    if doubt:
        close = second_us <= first_us * CLOSE
    else:
        ours, theirs = first.interval_us, second.interval_us
        close = ours is not None and theirs is not None and theirs[0] <= ours[1]
    if close:
        words, note = f"{first.id} and {second.id} are too close to tell", ""
    else:
        words = f"{first.id} is the fastest, {second_us / first_us:.2f} times faster than {second.id}"
        note = _note(first, second, other, doubt or APART)
    why = f"judged by {by}{f', as {doubt}' if doubt else ''}: {words}"
    return Judgement(by, None if close else first.id, why, note)


def _doubt(jobs: Sequence[JobResult]) -> str:
    """Why the whole model cannot decide."""
    for job in jobs:
        if job.model_us is None:
            return f"the whole model of {job.id} was not timed"
    for job in jobs:
        if not job.steady:
            return f"the whole model of {job.id} was timed on a busy host"
    return ""


def _figure(job: JobResult, by: str) -> float | None:
    return job.model_us if by == MODEL else job.reached_us


def _note(first: JobResult, second: JobResult, other: str, because: str) -> str:
    """A note for the case that the other figure puts the second first."""
    first_us, second_us = _figure(first, other), _figure(second, other)
    if first_us is None or second_us is None or first_us <= second_us:
        return ""
    return f"{other} says otherwise ({first_us / second_us:.2f} times slower): {because}"
