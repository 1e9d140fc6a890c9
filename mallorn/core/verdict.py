"""What a job's figures mean and what to type next: one judgement for terminal, page, Python and report."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import ceil, floor, log10
from pathlib import PurePath
from typing import Any, Final

from mallorn.core.advice import command_in
from mallorn.core.race import Race, raced
from mallorn.core.states import JobState

# Whoever reaches this share of what the machine computes has little left to win.
PEAK_ENOUGH: Final = 0.85
DOING: Final[dict[str, str]] = {
    JobState.QUEUED: "waits for a worker",
    JobState.IMPORTING: "reads the model and splits it into tasks",
    JobState.TUNING: "builds and times candidates",
    JobState.FINISHING: "measures the best again, checks what they compute, times the whole model",
}


class Level(StrEnum):
    """How good a job's result is; `none` where there is nothing to judge."""

    GOOD = "good"  # as fast as onnxruntime, or faster
    FAIR = "fair"  # little slower, or uncertain, or compared with TVM's default build alone
    POOR = "poor"  # slower, or failed
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A judgement in one line. `next` is a command, or empty where nothing is left to do."""

    level: Level
    summary: str
    next: str = ""

    def __str__(self) -> str:
        return self.summary

    @classmethod
    def told(cls, job: Mapping[str, Any]) -> "Verdict | None":
        """As the API gives it with a job."""
        known = job.get("verdict")
        return known and cls(Level(known["level"]), known["summary"], known["next"])


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a job. `useful_trials`: in all, as far as the planner can tell; None: it cannot."""

    job_id: str
    name: str
    state: JobState
    reason: str = ""
    trials: int = 0
    useful_trials: int | None = None
    report: Mapping[str, Any] = field(default_factory=dict)
    warnings: Sequence[Mapping[str, Any]] = ()


def judge(facts: Facts) -> Verdict:
    """The verdict on a job, whatever its state."""
    if facts.state is JobState.DONE:
        return _done(facts)
    what, _, hint = facts.reason.strip().partition("\n")
    command = command_in(facts.reason)
    if facts.state is JobState.FAILED:
        advice = [hint.replace("\n", " ")] if hint and not command else []
        words = "; ".join([f"failed: {what or 'no reason was recorded'}", *advice])
        return Verdict(Level.POOR, words, command or f"mallorn show {facts.job_id}")
    if facts.state is JobState.CANCELLED:
        return Verdict(Level.NONE, "cancelled; what it measured is kept")
    if facts.state is JobState.PAUSED:
        return Verdict(Level.NONE, what or "paused", command or f"mallorn resume {facts.job_id}")
    return Verdict(Level.NONE, what or DOING[facts.state], command or f"mallorn watch {facts.job_id}")


def _done(facts: Facts) -> Verdict:
    race = raced(facts.report.get("latency_us") or {})
    said = [*_standing(facts, race), *_doubts(facts)]
    return Verdict(_level(facts, race), "; ".join(said), _next(facts, race))


def _standing(facts: Facts, race: Race | None) -> list[str]:
    """How fast it is, for what effort, and how much is left to win."""
    if race is None:
        why = facts.report.get("not_timed")
        return [f"the whole model was not timed{f': {why}' if why else ''}", _trials(facts.trials)]
    peak = _peak_share(facts)
    share = [] if peak is None else [f"{peak:.0%} of what this machine computes".replace("%", " %")]
    more = _more_trials(facts)
    if more:
        useful = f"{_round_figure(facts.useful_trials or 0):,} useful trials"
        return [f"{race.words} after {facts.trials:,} of about {useful}", *share]
    if more is None:
        return [f"{race.words} after {_trials(facts.trials)}", *share]
    return [race.words, *share, "done" if race.won else "more trials would hardly help"]


def _trials(count: int) -> str:
    return f"{count:,} trial{'' if count == 1 else 's'}"


def _doubts(facts: Facts) -> list[str]:
    """What keeps the figures from being the whole truth."""
    conditions = facts.report.get("conditions") or {}
    said = []
    if not conditions.get("steady", True):
        why = str(conditions.get("note") or "the host was busy").rstrip(".")
        said.append(f"these figures are not certain: {why}")
    if steps := [str(step["step"]) for step in facts.report.get("not_done") or ()]:
        said.append(f"not done: {', '.join(steps)}")
    if count := len(facts.warnings):
        said.append(f"{count} warning{'' if count == 1 else 's'}")
    return said


def _level(facts: Facts, race: Race | None) -> Level:
    if race is None:
        return Level.NONE
    if race.lost:
        return Level.POOR
    doubtful = not _steady(facts) or bool(facts.report.get("not_done"))
    return Level.GOOD if race.won and not doubtful else Level.FAIR


def _next(facts: Facts, race: Race | None) -> str:
    """Uncertain figures are taken again before anyone tunes for their sake."""
    stem = PurePath(facts.name).stem
    files = f"{shlex.quote(f'{stem}.onnx')} --schedules {shlex.quote(f'{stem}-tuned')}"
    if race is None:
        hints = (command_in(step.get("hint", "")) for step in facts.report.get("not_done") or ())
        return next(filter(None, hints), f"mallorn bench {files}")
    if not _steady(facts):
        return f"mallorn bench {files}"
    if more := _more_trials(facts):
        return f"mallorn resume {facts.job_id} --trials +{more}"
    if race.by_default_build:
        return f"mallorn bench {files}"
    return "" if race.won else f"mallorn profile {files}"


def _steady(facts: Facts) -> bool:
    return bool((facts.report.get("conditions") or {}).get("steady", True))


def _peak_share(facts: Facts) -> float | None:
    share = (facts.report.get("limits") or {}).get("peak_share")
    return None if share is None else float(share)


def _more_trials(facts: Facts) -> int | None:
    """How many are worth adding, as a round number; None: nothing tells."""
    peak = _peak_share(facts)
    if peak is not None and peak >= PEAK_ENOUGH:
        return 0
    if facts.useful_trials is None:
        return None
    left = facts.useful_trials - facts.trials
    return 0 if left <= 0 else _round_up(left)


def _round_up(count: int) -> int:
    """To one digit, as 450 to 500."""
    unit: int = 10 ** floor(log10(count))
    return ceil(count / unit) * unit


def _round_figure(count: int) -> int:
    """To two digits: more would promise what nobody knows."""
    unit: int = 10 ** max(0, floor(log10(count)) - 1)
    return round(count / unit) * unit
