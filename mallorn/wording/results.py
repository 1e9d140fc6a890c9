"""What a finished job came to: how fast the model was, is, and would be elsewhere, and what went wrong."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mallorn.core.percent_and_command_text import percent
from mallorn.core.stand_in_measurers import STAND_INS
from mallorn.core.values.finish_report import FinishReport, ModelLatency, PointTimes
from mallorn.core.values.job import JobProgress, JobStatus
from mallorn.wording.format_values import Column, duration, latency
from mallorn.wording.tasks import rests_on

ENGINES: Final = {
    "untuned": "TVM, default build",
    "tuned": "TVM, tuned by Mallorn",
    "onnxruntime": "onnxruntime",
}

LEAST_TOLD_SEC: Final = 0.05
LEAST_SHARE: Final = 0.005  # less is told as nothing: the next measurement would say otherwise


@dataclass(frozen=True, slots=True)
class TimedEngine:
    """The whole model in one engine, beside TVM's default build where that was timed."""

    engine: str
    timing: ModelLatency
    untuned: ModelLatency | None


ENGINE_COLUMNS: Final = (
    Column[TimedEngine]("ENGINE", lambda row: row.engine),
    Column[TimedEngine]("LATENCY", lambda row: latency(row.timing.median)),
    Column[TimedEngine]("INTERVAL", lambda row: f"{latency(row.timing.low)} to {latency(row.timing.high)}"),
    Column[TimedEngine](
        "TIMES FASTER", lambda row: f"{row.untuned.median / row.timing.median:.1f}" if row.untuned else ""
    ),
)


def latency_rows(latencies: Mapping[str, ModelLatency | None]) -> list[TimedEngine]:
    """One row an engine that was timed."""
    untuned = latencies.get("untuned")
    return [
        TimedEngine(title, timing, None if key == "untuned" else untuned)
        for key, title in ENGINES.items()
        if (timing := latencies.get(key))
    ]


#: Of the whole model at one point of a range.
POINT_COLUMNS: Final = (
    Column[PointTimes]("AT", lambda point: " ".join(f"{name}={size}" for name, size in point.sizes.items())),
    Column[PointTimes]("TUNED", lambda point: _timed(point, "tuned")),
    Column[PointTimes]("A SECOND", lambda point: _rate(point, "tuned")),
    Column[PointTimes]("ONNXRUNTIME", lambda point: _timed(point, "onnxruntime")),
)


def _rate(point: PointTimes, engine: str) -> str:
    """Calls a second; of a decoder's step, tokens."""
    timing = point.latency_us.get(engine)
    return "" if timing is None else f"{1e6 / timing.median:,.{0 if timing.median < 1e4 else 1}f}"


def _timed(point: PointTimes, engine: str) -> str:
    timing = point.latency_us.get(engine)
    return latency(None if timing is None else timing.median)


def facts(job: JobStatus) -> list[str]:
    """What else is known of a finished job, a line each."""
    report = job.finish_report
    took = "-" if job.finished_at is None else duration(job.finished_at - job.created_at)
    trials = f"{job.progress.trials} trials in {took}; failures: {failures(job.progress)}"
    return [
        trials,
        *_spent(job),
        *_earned(report),
        *_checks(report),
        *_inside(report),
        *_busy(report),
        *left_undone(report),
        *warnings(job),
    ]


def failures(progress: JobProgress) -> str:
    """How many candidates failed, by outcome, and how many nobody built."""
    failed = ", ".join(f"{count} {outcome}" for outcome, count in progress.failures.items()) or "none"
    return "; ".join(filter(None, [failed, unbuilt(progress)]))


def unbuilt(progress: JobProgress) -> str:
    """What was not built by choice; empty where that is nothing."""
    return f"{progress.left_unbuilt} left unbuilt: they unroll too far" if progress.left_unbuilt else ""


def left_undone(report: FinishReport | None) -> list[str]:
    """Which steps the finish had to leave out, and why, a line each."""
    steps = report.not_done if report else ()
    return [_with_hint(f"not done: {step.step}: {step.why}", step.hint) for step in steps]


def warnings(job: JobStatus) -> list[str]:
    """What went wrong along the way without ending the job, a line each."""
    return [
        _with_hint(
            f"warning: {each.source}: {each.message}{f' ({each.count} times)' if each.count > 1 else ''}",
            each.hint,
        )
        for each in job.warnings
    ]


def _with_hint(words: str, hint: str) -> str:
    return f"{words}; {hint}" if hint else words


def _spent(job: JobStatus) -> list[str]:
    """Where a job without trials spent its time, the most first."""
    steps = job.finish_report.seconds if job.trials == 0 else {}
    most = sorted(steps.items(), key=lambda each: -each[1].wall)
    told = [f"{name} {step.wall:.1f}" for name, step in most if step.wall >= LEAST_TOLD_SEC]
    return [f"seconds: {', '.join(told)}"] if told else []


def _earned(report: FinishReport) -> list[str]:
    """What trials won over a job without any, and how what is handed out was found."""
    timed = report.inside_the_model and report.inside_the_model.beside_guesses
    if not timed:
        return []
    guesses_us, found_us = timed
    won = 1 - found_us / guesses_us
    counts = sorted(report.found_by.items(), key=lambda each: -each[1])
    by = (
        f"tasks by how their schedules were found: {', '.join(f'{means} {count}' for means, count in counts)}"
    )
    if won < LEAST_SHARE:
        return [f"trials won nothing over a job without trials; {by}"]
    change = f"{latency(guesses_us)} became {latency(found_us)}, timed in turn"
    return [f"trials won {percent(won, 1)} over a job without trials: {change}; {by}"]


def _inside(report: FinishReport) -> list[str]:
    """What the pass inside the whole model changed, if it did."""
    joint = report.inside_the_model
    if joint is None or not joint.taken or joint.latency_us is None or joint.latency_us.after is None:
        return []
    times, count = joint.latency_us, len(joint.tasks)
    subject = "one task has" if count == 1 else f"{count} tasks have"
    change = f"{latency(times.before)} became {latency(times.after)}"
    return [f"for the whole model's sake {subject} another of the fastest schedules: {change}"]


def _busy(report: FinishReport) -> list[str]:
    """What the model takes beside other programs, and whether other schedules are better there."""
    found = report.contention
    if found is None or not found.loads:
        return []
    alone, full = found.loads[0], found.loads[-1]
    beside = f"beside {_programs(full.programs)} that compute and stream memory"
    takes = f"{beside} the model takes {latency(full.alone_us)}, {latency(alone.alone_us)} beside none"
    if not found.tasks:
        return [f"{takes}; what is fastest alone is fastest there, too"]
    count = len(found.tasks)
    other = (
        f"{latency(full.loaded_us)} with other schedules for {'one task' if count == 1 else f'{count} tasks'}"
    )
    if found.wins_from is None:
        return [f"{takes}, and {other}: too little to keep them"]
    wins = f"which win from {_programs(found.wins_from)} on: apply.py MODEL --version loaded"
    return [f"{takes}, and {other}, {wins}"]


def _programs(count: int) -> str:
    return "no program" if count == 0 else "one program" if count == 1 else f"{count} programs"


def _checks(report: FinishReport) -> list[str]:
    lines = []
    if report.answers:
        lines += rests_on(report)
    elif report.of is not None:
        kind = "an unchecked" if report.measured_by in STAND_INS else "a verified"
        lines.append(f"{report.found} of {report.of} workloads have {kind} schedule")
    if report.without_time:
        lines.append(f"without a time, as no clock saw their kernels: {', '.join(report.without_time)}")
    errors = {"TVM's default build": report.error_vs_untuned, "onnxruntime": report.error_vs_onnxruntime}
    known = [f"{error:.1e} against {title}" for title, error in errors.items() if error is not None]
    return [*lines, f"relative error {', '.join(known)}"] if known else lines
