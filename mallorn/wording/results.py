"""Texts on a finished job: the model's speed in each engine, checks, failures and warnings."""

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
LEAST_SHARE: Final = 0.005  # smaller gains are within the noise and are shown as none


@dataclass(frozen=True, slots=True)
class TimedEngine:
    """Latency of the whole model in one engine, and in TVM's default build if timed."""

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
    """Return one row for each engine that was timed."""
    untuned = latencies.get("untuned")
    return [
        TimedEngine(title, timing, None if key == "untuned" else untuned)
        for key, title in ENGINES.items()
        if (timing := latencies.get(key))
    ]


#: Columns on the whole model at one point of a range of shapes.
POINT_COLUMNS: Final = (
    Column[PointTimes]("AT", lambda point: " ".join(f"{name}={size}" for name, size in point.sizes.items())),
    Column[PointTimes]("TUNED", lambda point: _timed(point, "tuned")),
    Column[PointTimes]("A SECOND", lambda point: _rate(point, "tuned")),
    Column[PointTimes]("ONNXRUNTIME", lambda point: _timed(point, "onnxruntime")),
)


def _rate(point: PointTimes, engine: str) -> str:
    """Return the model's runs per second: for one step of a decoder, tokens per second."""
    timing = point.latency_us.get(engine)
    return "" if timing is None else f"{1e6 / timing.median:,.{0 if timing.median < 1e4 else 1}f}"


def _timed(point: PointTimes, engine: str) -> str:
    timing = point.latency_us.get(engine)
    return latency(None if timing is None else timing.median)


def facts(job: JobStatus) -> list[str]:
    """Return lines on a finished job: trials, gains, checks, steps left out and warnings."""
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
    """Return the number of failed candidates by outcome, and of those left unbuilt."""
    failed = ", ".join(f"{count} {outcome}" for outcome, count in progress.failures.items()) or "none"
    return "; ".join(filter(None, [failed, unbuilt(progress)]))


def unbuilt(progress: JobProgress) -> str:
    """Return how many candidates were left unbuilt on purpose; empty if none."""
    return f"{progress.left_unbuilt} left unbuilt: they unroll too far" if progress.left_unbuilt else ""


def left_undone(report: FinishReport | None) -> list[str]:
    """Return a line for each step that the finish left out, with the reason."""
    steps = report.not_done if report else ()
    return [_with_hint(f"not done: {step.step}: {step.why}", step.hint) for step in steps]


def warnings(job: JobStatus) -> list[str]:
    """Return a line for each warning of the job."""
    return [
        _with_hint(
            f"warning: {each.source}: {each.message}{f' ({each.count} times)' if each.count > 1 else ''}",
            each.hint,
        )
        for each in job.warnings
    ]


def _with_hint(text: str, hint: str) -> str:
    return f"{text}; {hint}" if hint else text


def _spent(job: JobStatus) -> list[str]:
    """Return a line on where a job without trials spent its time, longest step first."""
    steps = job.finish_report.seconds if job.trials == 0 else {}
    steps_by_time = sorted(steps.items(), key=lambda each: -each[1].wall)
    texts = [f"{name} {step.wall:.1f}" for name, step in steps_by_time if step.wall >= LEAST_TOLD_SEC]
    return [f"seconds: {', '.join(texts)}"] if texts else []


def _earned(report: FinishReport) -> list[str]:
    """Return a line on the gain over a job without trials, and how schedules were found."""
    latencies = report.inside_the_model and report.inside_the_model.beside_guesses
    if not latencies:
        return []
    guesses_us, exported_us = latencies
    gain = 1 - exported_us / guesses_us
    counts = sorted(report.found_by.items(), key=lambda each: -each[1])
    sources = (
        f"tasks by how their schedules were found: {', '.join(f'{means} {count}' for means, count in counts)}"
    )
    if gain < LEAST_SHARE:
        return [f"trials won nothing over a job without trials; {sources}"]
    change = f"{latency(guesses_us)} became {latency(exported_us)}, timed in turn"
    return [f"trials won {percent(gain, 1)} over a job without trials: {change}; {sources}"]


def _inside(report: FinishReport) -> list[str]:
    """Return a line on schedules exchanged inside the whole model, if they are exported."""
    inside = report.inside_the_model
    if inside is None or not inside.taken or inside.latency_us is None or inside.latency_us.after is None:
        return []
    latency_us, count = inside.latency_us, len(inside.tasks)
    subject = "one task has" if count == 1 else f"{count} tasks have"
    change = f"{latency(latency_us.before)} became {latency(latency_us.after)}"
    return [f"for the whole model's sake {subject} another of the fastest schedules: {change}"]


def _busy(report: FinishReport) -> list[str]:
    """Return a line on the model's latency under load, and on schedules for that case."""
    contention = report.contention
    if contention is None or not contention.loads:
        return []
    idle, full = contention.loads[0], contention.loads[-1]
    load_words = f"beside {_programs(full.programs)} that compute and stream memory"
    takes = f"{load_words} the model takes {latency(full.alone_us)}, {latency(idle.alone_us)} beside none"
    if not contention.tasks:
        return [f"{takes}; what is fastest alone is fastest there, too"]
    count = len(contention.tasks)
    loaded_words = (
        f"{latency(full.loaded_us)} with other schedules for {'one task' if count == 1 else f'{count} tasks'}"
    )
    if contention.wins_from is None:
        return [f"{takes}, and {loaded_words}: too little to keep them"]
    wins = f"which win from {_programs(contention.wins_from)} on: apply.py MODEL --version loaded"
    return [f"{takes}, and {loaded_words}, {wins}"]


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
    known_errors = [f"{error:.1e} against {title}" for title, error in errors.items() if error is not None]
    return [*lines, f"relative error {', '.join(known_errors)}"] if known_errors else lines
