"""What a job's figures mean and what to type next: one judgement for terminal, page, Python and report."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Final

from mallorn.core.stand_ins import measured_by
from mallorn.core.states import SEARCH, ZERO_SHOT, JobState, Mode
from mallorn.core.text import command_in, percent
from mallorn.core.values.job import JobWarning
from mallorn.core.values.report import FinishReport
from mallorn.core.values.verdict import Level, Verdict
from mallorn.results.race import Race, beside_onnxruntime, raced

# Whoever reaches this share of what the machine computes has little left to win.
PEAK_ENOUGH: Final = 0.85
DOING: Final[dict[str, str]] = {
    JobState.QUEUED: "waits for a worker",
    JobState.IMPORTING: "reads the model and splits it into tasks",
    JobState.TUNING: "builds and times candidates",
    JobState.FINISHING: "measures the best again, checks what they compute, times the whole model",
}


# What a job did that answered from what is known.
NOT_BUILT: Final = "zero-shot: from what is known, nothing was built or checked"
NOT_TUNED: Final = "one-shot: from what is known, built and checked"
PARTLY: Final = "one-shot: from what is known, not every task was checked"


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What is known of a job."""

    job_id: str
    name: str
    state: JobState
    reason: str = ""
    trials: int = 0
    mode: Mode = SEARCH
    report: FinishReport = field(default_factory=FinishReport)
    warnings: Sequence[JobWarning] = ()


def judge(facts: JobFacts) -> Verdict:
    """The verdict on a job, whatever its state."""
    if facts.state is JobState.DONE:
        return _done(facts)
    what, _, hint = facts.reason.strip().partition("\n")
    command = command_in(facts.reason)
    if facts.state is JobState.FAILED:
        advice = [hint.replace("\n", " ")] if hint and not command else []
        words = "; ".join([f"failed: {what or 'no reason was recorded'}", *advice])
        return Verdict(level=Level.POOR, summary=words, next=command or f"mallorn show {facts.job_id}")
    if facts.state is JobState.CANCELLED:
        return Verdict(level=Level.NONE, summary="cancelled; what it measured is kept")
    if facts.state is JobState.PAUSED:
        return Verdict(
            level=Level.NONE, summary=what or "paused", next=command or f"mallorn resume {facts.job_id}"
        )
    return Verdict(
        level=Level.NONE, summary=what or DOING[facts.state], next=command or f"mallorn watch {facts.job_id}"
    )


def _done(facts: JobFacts) -> Verdict:
    race = raced(facts.report.latency_us)
    who = measured_by(facts.report.measured_by)
    said = [*filter(None, [who]), *_standing(facts, race), *_doubts(facts)]
    beside = beside_onnxruntime(facts.report.latency_us)
    return Verdict(level=_level(facts, race), summary="; ".join(said), next=_next(facts, race), beside=beside)


def _standing(facts: JobFacts, race: Race | None) -> list[str]:
    """How fast it is, for what effort, and how much is left to win."""
    if race is None:
        why = facts.report.not_timed
        effort = _trials(facts.trials) if facts.mode == SEARCH else _answered(facts)
        return [f"the whole model was not timed{f': {why}' if why else ''}", effort]
    peak = facts.report.peak_share
    share = [] if peak is None else [f"{percent(peak)} of what this machine computes"]
    if _at_limit(facts):
        return [race.words, *share, "done" if race.won else "more trials would hardly help"]
    if facts.mode != SEARCH:
        return [race.words, *share, _answered(facts)]
    outlook = facts.report.outlook
    return [f"{race.words} after {_trials(facts.trials)}", *share, *([outlook.left] if outlook else [])]


def _answered(facts: JobFacts) -> str:
    """How far the schedules of a job that measured no candidates may be trusted."""
    if facts.mode == ZERO_SHOT:
        return NOT_BUILT
    return NOT_TUNED if all(answer.checked for answer in facts.report.answers.values()) else PARTLY


def _at_limit(facts: JobFacts) -> bool:
    peak = facts.report.peak_share
    return peak is not None and peak >= PEAK_ENOUGH


def _trials(count: int) -> str:
    return f"{count:,} trial{'' if count == 1 else 's'}"


def _doubts(facts: JobFacts) -> list[str]:
    """What keeps the figures from being the whole truth."""
    said = []
    if not facts.report.steady:
        why = (facts.report.note or "the host was busy").rstrip(".")
        said.append(f"these figures are not certain: {why}")
    if steps := [left.step for left in facts.report.not_done]:
        said.append(f"not done: {', '.join(steps)}")
    if count := len(facts.warnings):
        said.append(f"{count} warning{'' if count == 1 else 's'}")
    return said


def _level(facts: JobFacts, race: Race | None) -> Level:
    if race is None:
        return Level.NONE
    if race.lost:
        return Level.POOR
    doubtful = not facts.report.steady or bool(facts.report.not_done)
    return Level.GOOD if race.won and not doubtful else Level.FAIR


def _next(facts: JobFacts, race: Race | None) -> str:
    """Uncertain figures are taken again before anyone tunes for their sake."""
    stem = PurePath(facts.name).stem
    model = shlex.quote(f"{stem}.onnx")
    files = f"{model} --schedules {shlex.quote(f'{stem}-tuned')}"
    if race is None:
        hints = (command_in(left.hint) for left in facts.report.not_done)
        return next(filter(None, hints), f"mallorn bench {files}")
    if not facts.report.steady:
        return f"mallorn bench {files}"
    outlook = facts.report.outlook
    if not _at_limit(facts) and (outlook is None or outlook.pays):
        return f"mallorn resume {facts.job_id} --auto" if facts.mode == SEARCH else f"mallorn tune {model}"
    if race.by_default_build:
        return f"mallorn bench {files}"
    return "" if race.won else f"mallorn profile {files}"
