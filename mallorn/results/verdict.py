"""What a job's figures mean and what to type next: one judgement for terminal, page, Python and report."""

import shlex
from pathlib import PurePath
from typing import Final

from mallorn.core.percent_and_command_text import command_in, percent
from mallorn.core.stand_in_measurers import measured_by
from mallorn.core.states import ZERO_SHOT, JobState
from mallorn.core.values.job import JobStatus
from mallorn.core.values.verdict import Level, Verdict
from mallorn.results.speedup import Speedup, beside_onnxruntime, raced

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


def judge(job: JobStatus) -> Verdict:
    """The verdict on a job, whatever its state."""
    if job.state is JobState.DONE:
        report = job.finish_report
        race, beside = raced(report.latency_us), beside_onnxruntime(report.latency_us)
        level = Level.NONE if race is None else race.level
        if level is Level.GOOD and (not report.steady or report.not_done):
            level = Level.FAIR
        said = [*filter(None, [measured_by(report.measured_by)]), *_standing(job, race), *_doubts(job)]
        return Verdict(level=level, summary="; ".join(said), next=_next(job, race), beside=beside)
    what, _, hint = job.reason.strip().partition("\n")
    command = command_in(job.reason)
    if job.state is JobState.FAILED:
        advice = [hint.replace("\n", " ")] if hint and not command else []
        words = "; ".join([f"failed: {what or 'no reason was recorded'}", *advice])
        return Verdict(level=Level.POOR, summary=words, next=command or f"mallorn show {job.id}")
    if job.state is JobState.CANCELLED:
        return Verdict(level=Level.NONE, summary="cancelled; what it measured is kept")
    if job.state is JobState.PAUSED:
        return Verdict(level=Level.NONE, summary=what or "paused", next=command or f"mallorn resume {job.id}")
    return Verdict(
        level=Level.NONE, summary=what or DOING[job.state], next=command or f"mallorn watch {job.id}"
    )


def _standing(job: JobStatus, race: Speedup | None) -> list[str]:
    """How fast it is, for what effort, and how much is left to win."""
    if race is None:
        why = job.finish_report.not_timed
        effort = _trials(job.progress.trials) if job.options.searches else _answered(job)
        return [f"the whole model was not timed{f': {why}' if why else ''}", effort]
    peak = job.finish_report.peak_share
    share = [] if peak is None else [f"{percent(peak)} of what this machine computes"]
    if _at_limit(job):
        return [race.words, *share, "done" if race.won else "more trials would hardly help"]
    if not job.options.searches:
        return [race.words, *share, _answered(job)]
    ahead = job.finish_report.tuning_gain or job.finish_report.outlook
    left = [ahead.left] if ahead else []
    return [f"{race.words} after {_trials(job.progress.trials)}", *share, *left]


def _answered(job: JobStatus) -> str:
    """How far the schedules of a job that measured no candidates may be trusted."""
    if job.options.mode == ZERO_SHOT:
        return NOT_BUILT
    return NOT_TUNED if all(answer.checked for answer in job.finish_report.answers.values()) else PARTLY


def _at_limit(job: JobStatus) -> bool:
    peak, gain = job.finish_report.peak_share, job.finish_report.tuning_gain
    return gain is None and peak is not None and peak >= PEAK_ENOUGH


def _trials(count: int) -> str:
    return f"{count:,} trial{'' if count == 1 else 's'}"


def _doubts(job: JobStatus) -> list[str]:
    """What keeps the figures from being the whole truth."""
    said = []
    if not job.finish_report.steady:
        why = (job.finish_report.note or "the host was busy").rstrip(".")
        said.append(f"these figures are not certain: {why}")
    if steps := [left.step for left in job.finish_report.not_done]:
        said.append(f"not done: {', '.join(steps)}")
    if count := len(job.warnings):
        said.append(f"{count} warning{'' if count == 1 else 's'}")
    return said


def _next(job: JobStatus, race: Speedup | None) -> str:
    """Uncertain figures are taken again before anyone tunes for their sake."""
    stem = PurePath(job.name).stem
    model = shlex.quote(f"{stem}.onnx")
    files = f"{model} --schedules {shlex.quote(f'{stem}-tuned')}"
    if race is None:
        hints = (command_in(left.hint) for left in job.finish_report.not_done)
        return next(filter(None, hints), f"mallorn bench {files}")
    if not job.finish_report.steady:
        conditions = job.finish_report.conditions
        times = conditions.trials if conditions else None
        waits = times is not None and times.is_uncertain and job.options.searches
        return f"mallorn tune {model} --wait-for-quiet" if waits else f"mallorn bench {files}"
    gain = job.finish_report.tuning_gain
    ahead = gain or job.finish_report.outlook
    # Where nobody knows, a job that decides for itself soon finds out.
    if not _at_limit(job) and (ahead is None or ahead.pays):
        budget = f"--trials +{gain.trials}" if gain else "--auto"
        return f"mallorn resume {job.id} {budget}" if job.options.searches else f"mallorn tune {model}"
    if race.by_default_build:
        return f"mallorn bench {files}"
    return "" if race.won else f"mallorn profile {files}"
