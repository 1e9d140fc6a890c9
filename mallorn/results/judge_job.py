"""Verdict on a job and the next command, for the terminal, the page, Python and reports."""

import shlex
from pathlib import PurePath
from typing import Final

from mallorn.core.format_text import command_in, percent
from mallorn.core.job_options import ON_DEVICES
from mallorn.core.registry import VIRTUAL_DEVICES
from mallorn.core.states import ZERO_SHOT, JobState
from mallorn.core.values.job import JobStatus
from mallorn.core.values.verdict import Level, Verdict
from mallorn.results.speedup import Speedup, compare_whole_file, compare_with_onnxruntime, compare_with_rival

# A model at this share of the machine's peak has little left to gain.
PEAK_ENOUGH: Final = 0.85
DOING: Final[dict[str, str]] = {
    JobState.QUEUED: "waits for a worker",
    JobState.IMPORTING: "reads the model and splits it into tasks",
    JobState.TUNING: "builds and times candidates",
    JobState.FINISHING: "measures the best again, checks what they compute, times the whole model",
}
# What a job without a search did.
NOT_BUILT: Final = "zero-shot: schedules from stored data, neither built nor checked"
NOT_TUNED: Final = "one-shot: schedules from stored data, built and checked"
PARTLY: Final = "one-shot: schedules from stored data, not all of them checked"


def judge_job(job: JobStatus) -> Verdict:
    """Return the verdict on a job in any state."""
    if job.state is JobState.DONE:
        report = job.finish_report
        race, comparison = compare_with_rival(report.latency_us), compare_with_onnxruntime(report.latency_us)
        level = Level.NONE if race is None else race.level
        if level is Level.GOOD and (not report.is_undisturbed or report.skipped_steps):
            level = Level.FAIR
        texts = _describe_performance(job, race)
        if job.graph is not None and (region := job.graph.region) is not None:
            texts[0] = f"of the {region.nodes} of {region.total} nodes that are compiled: {texts[0]}"
            if whole := compare_whole_file(report):
                texts.insert(1, whole)
            level = Level.FAIR if level is Level.GOOD else level
        if (measurer := report.measured_by) and measurer not in ON_DEVICES:
            ending = ", on no device" if measurer in VIRTUAL_DEVICES else ""
            texts = [f"measured by {measurer}{ending}", *texts]
        if not report.is_undisturbed:
            cause = (report.disturbance_text or "the host was busy").rstrip(".")
            texts.append(f"these figures are not certain: {cause}")
        if steps := [omission.step for omission in report.skipped_steps]:
            texts.append(f"not done: {', '.join(steps)}")
        if count := len(job.warnings):
            texts.append(f"{count} warning{'' if count == 1 else 's'}")
        return Verdict(
            level=level,
            summary="; ".join(texts),
            next_command=_next_command(job, race),
            comparison=comparison,
        )
    command = command_in(job.hint)
    if job.state is JobState.FAILED:
        advice = [job.hint.replace("\n", " ")] if job.hint and not command else []
        words = "; ".join([f"failed: {job.explanation or 'no reason was recorded'}", *advice])
        return Verdict(level=Level.POOR, summary=words, next_command=command or f"mallorn show {job.id}")
    if job.state is JobState.CANCELLED:
        return Verdict(level=Level.NONE, summary="cancelled; what it measured is kept")
    command = command or f"mallorn {'resume' if job.state is JobState.PAUSED else 'watch'} {job.id}"
    summary = job.explanation or DOING.get(job.state, job.state)
    return Verdict(level=Level.NONE, summary=summary, next_command=command)


def _describe_performance(job: JobStatus, race: Speedup | None) -> list[str]:
    is_tuned = job.options.needs_measurements
    if race is None:
        effort = _trials(job.progress.trials) if is_tuned else _describe_untuned_result(job)
        return ["the whole model was not timed", effort]
    peak = job.finish_report.peak_share
    share = [] if peak is None else [f"{percent(peak)} of what this machine computes"]
    if _at_limit(job):
        return [race.full_text, *share, "done" if race.is_good else "more trials would hardly help"]
    if not is_tuned:
        return [race.full_text, *share, _describe_untuned_result(job)]
    forecast = job.finish_report.tuning_gain or job.finish_report.outlook
    gain = [forecast.gain_text] if forecast else []
    return [f"{race.full_text} after {_trials(job.progress.trials)}", *share, *gain]


def _describe_untuned_result(job: JobStatus) -> str:
    if job.options.mode == ZERO_SHOT:
        return NOT_BUILT
    if all(answer.is_verified for answer in job.finish_report.unmeasured_schedules.values()):
        return NOT_TUNED
    return PARTLY


def _at_limit(job: JobStatus) -> bool:
    peak, gain = job.finish_report.peak_share, job.finish_report.tuning_gain
    return gain is None and peak is not None and peak >= PEAK_ENOUGH


def _trials(count: int) -> str:
    return f"{count:,} trial{'' if count == 1 else 's'}"


def _next_command(job: JobStatus, race: Speedup | None) -> str:
    """Return the next command; uncertain figures are to be measured again first."""
    stem = PurePath(job.name).stem
    model = shlex.quote(f"{stem}.onnx")
    files = f"{model} --schedules {shlex.quote(f'{stem}-tuned')}"
    if race is None:
        hints = (command_in(omission.hint) for omission in job.finish_report.skipped_steps)
        return next(filter(None, hints), f"mallorn bench {files}")
    if not job.finish_report.is_undisturbed:
        conditions = job.finish_report.conditions
        disturbance = conditions.trials if conditions else None
        is_disturbed = disturbance is not None and disturbance.is_uncertain and job.options.needs_measurements
        return f"mallorn tune {model} --wait-for-quiet" if is_disturbed else f"mallorn bench {files}"
    gain = job.finish_report.tuning_gain
    forecast = gain or job.finish_report.outlook
    # If the gain is unknown, a job with `--auto` soon finds it out.
    if not _at_limit(job) and (forecast is None or forecast.is_worth_continuing):
        if not job.options.needs_measurements:
            return f"mallorn tune {model} --auto"
        return f"mallorn resume {job.id} " + (f"--trials +{gain.trials}" if gain else "--auto")
    if race.is_against_default_build:
        return f"mallorn bench {files}"
    return "" if race.is_good else f"mallorn profile {files}"
