"""Texts and tables on a job: its tasks, model latency, checks, failures and warnings."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mallorn.core.format_text import percent
from mallorn.core.registry import VIRTUAL_DEVICES
from mallorn.core.values.finish_report import (
    FinishReport,
    ModelLatency,
    PointTimes,
    Source,
    UnmeasuredSchedule,
)
from mallorn.core.values.job import JobProgress, JobStatus, TaskStatus
from mallorn.results.speedup import RIVALS, TUNED, compare_with_rival, format_ratio
from mallorn.wording.format_values import Column, format_duration, format_latency

TASK_COLUMNS: Final = (
    Column[TaskStatus]("ID", lambda task: task.index),
    Column[TaskStatus]("Name", lambda task: task.name),
    Column[TaskStatus]("FLOP", lambda task: task.flops),
    Column[TaskStatus]("Weight", lambda task: task.weight),
    Column[TaskStatus]("Speed\n(GFLOPS)", lambda task: task.gflops),
    Column[TaskStatus]("Latency\n(us)", lambda task: task.latency_us),
    Column[TaskStatus]("Weighted\nLatency (us)", lambda task: task.weighted_latency_us),
    Column[TaskStatus]("Trials", lambda task: task.trials),
    Column[TaskStatus]("State", lambda task: task.state),
)
STOCK_COLUMN: Final = Column[TaskStatus]("Stock's logs\n(us)", lambda task: task.stock_us)
RESTS_ON: Final[dict[str, str]] = {
    Source.SAME: "measurements of the same workload",
    Source.NEAR: "schedules of the same loops in other sizes",
    Source.LEARNED: "what a base has learned",
    Source.MODELLED: "a model of this machine",
    Source.CONSTRUCTED: "a construction for this machine",
}
AnsweredTask = tuple[str, UnmeasuredSchedule]
ANSWER_COLUMNS: Final = (
    Column[AnsweredTask]("TASK", lambda row: row[0]),
    Column[AnsweredTask]("ANSWERED BY", lambda row: row[1].source),
    Column[AnsweredTask]("SURE", lambda row: row[1].confidence),
    Column[AnsweredTask](
        "EXPECTED", lambda row: "" if row[1].expected_us is None else format_latency(row[1].expected_us)
    ),
    Column[AnsweredTask]("CHECKED", lambda row: "yes" if row[1].is_verified else "no"),
    Column[AnsweredTask]("BECAUSE", lambda row: row[1].basis),
)


@dataclass(frozen=True, slots=True)
class FamilyRow:
    """Tasks that are in one family (sharing a cost model) for the same reason."""

    family: str
    why: str
    members: tuple[int, ...]


FAMILY_COLUMNS: Final = (
    Column[FamilyRow]("Family", lambda kin: kin.family),
    Column[FamilyRow]("IDs", lambda kin: ", ".join(map(str, kin.members))),
    Column[FamilyRow]("Why", lambda kin: kin.why),
)


def task_columns(tasks: Iterable[TaskStatus]) -> Sequence[Column[TaskStatus]]:
    """Return the columns of the task table; stock MetaSchedule's times only if known."""
    if all(task.stock_us is None for task in tasks):
        return TASK_COLUMNS
    return *TASK_COLUMNS, STOCK_COLUMN


def describe_stock_comparison(tasks: Iterable[TaskStatus]) -> str:
    """Return a text that compares latencies of stock MetaSchedule's logs with the job's."""
    pairs = [
        (task.weight * task.stock_us, task.weight * task.latency_us)
        for task in tasks
        if task.stock_us is not None and task.latency_us is not None
    ]
    if not pairs:
        return ""
    stock_us, here_us = (format_latency(sum(side)) for side in zip(*pairs, strict=True))
    task_count = "1 task" if len(pairs) == 1 else f"{len(pairs)} tasks"
    return f"{stock_us} for {task_count}, on a host that its logs do not name; {here_us} here"


def list_family_rows(tasks: Iterable[TaskStatus]) -> list[FamilyRow]:
    """Return a row per family (tasks with one cost model) and reason for being in it."""
    members: dict[tuple[str, str], list[int]] = {}
    for task in tasks:
        if task.family:
            members.setdefault((task.family, task.family_why), []).append(task.index)
    return [
        FamilyRow(family, reason, tuple(indices)) for (family, reason), indices in sorted(members.items())
    ]


def describe_schedule_sources(report: FinishReport) -> list[str]:
    """Return lines on what the tasks' schedules are based on and whether they were checked."""
    answers = report.unmeasured_schedules.values()
    if not answers:
        return []
    counts = Counter(answered.source for answered in answers)
    parts = [f"{counts[source]} on {RESTS_ON[source]}" for source in Source if counts[source]]
    checked = sum(answered.is_verified for answered in answers)
    answer = "yes" if checked == len(answers) else f"{checked} of them" if checked else "no"
    total = len(answers) if report.workload_count is None else report.workload_count
    return [
        f"{len(answers)} of {total} tasks have a schedule, and none was timed for it: {', '.join(parts)}",
        f"built and checked: {answer}",
    ]


ENGINES: Final = {
    "untuned": "TVM, default build",
    "tuned": "TVM, tuned by Mallorn",
    "onnxruntime": "onnxruntime",
}

LEAST_TOLD_SEC: Final = 0.05
LEAST_SHARE: Final = 0.005  # smaller gains are within the noise and are shown as none


@dataclass(frozen=True, slots=True)
class TimedEngine:
    """The model's latency in an engine, and how many times as fast as the rival it is."""

    engine: str
    timing: ModelLatency
    times: str


ENGINE_COLUMNS: Final = (
    Column[TimedEngine]("ENGINE", lambda row: row.engine),
    Column[TimedEngine]("LATENCY", lambda row: format_latency(row.timing.median)),
    Column[TimedEngine](
        "INTERVAL", lambda row: f"{format_latency(row.timing.low)} to {format_latency(row.timing.high)}"
    ),
)


def engine_columns(latencies: Mapping[str, ModelLatency | None]) -> Sequence[Column[TimedEngine]]:
    """Return the columns of the engines' table; the last one names the rival, if any was timed."""
    rival = next((name for name in RIVALS if latencies.get(name)), None)
    if rival is None:
        return ENGINE_COLUMNS
    heading = "VS ONNXRUNTIME" if rival == "onnxruntime" else "VS DEFAULT BUILD"
    return *ENGINE_COLUMNS, Column[TimedEngine](heading, lambda row: row.times)


def latency_rows(latencies: Mapping[str, ModelLatency | None]) -> list[TimedEngine]:
    rival = next((latencies[name] for name in RIVALS if latencies.get(name)), None)
    race = compare_with_rival(latencies)
    rows = []
    for key, title in ENGINES.items():
        if timing := latencies.get(key):
            ratio = None if rival is None else rival.median / timing.median
            if race is not None and key == TUNED:
                ratio = race.times  # as in the verdict, from bursts in pairs
            times = "" if ratio is None else "1" if timing is rival else format_ratio(ratio)
            rows.append(TimedEngine(title, timing, times))
    return rows


#: Columns on the whole model at one point of a range of shapes.
POINT_COLUMNS: Final = (
    Column[PointTimes]("AT", lambda point: " ".join(f"{name}={size}" for name, size in point.sizes.items())),
    Column[PointTimes]("TUNED", lambda point: _format_engine_time(point, "tuned")),
    Column[PointTimes]("A SECOND", lambda point: _runs_per_second(point)),
    Column[PointTimes]("ONNXRUNTIME", lambda point: _format_engine_time(point, "onnxruntime")),
)


def _runs_per_second(point: PointTimes) -> str:
    """Return the model's runs per second; for a decoder's step, these are tokens."""
    timing = point.latency_us.get("tuned")
    return "" if timing is None else f"{1e6 / timing.median:,.{0 if timing.median < 1e4 else 1}f}"


def _format_engine_time(point: PointTimes, engine: str) -> str:
    timing = point.latency_us.get(engine)
    return format_latency(None if timing is None else timing.median)


def describe_result(job: JobStatus) -> list[str]:
    """Return lines on an ended job: trials, gains, checks, skipped steps and warnings."""
    report = job.finish_report
    took = "-" if job.finished_at is None else format_duration(job.finished_at - job.created_at)
    lines = [f"{job.progress.trials} trials in {took}; failures: {describe_failures(job.progress)}"]
    if job.trials == 0:  # the job's time went into these steps
        steps = sorted(report.seconds.items(), key=lambda item: -item[1].wall)
        texts = [f"{name} {step.wall:.1f}" for name, step in steps if step.wall >= LEAST_TOLD_SEC]
        if texts:
            lines.append(f"seconds: {', '.join(texts)}")
    lines += _gain_from_trials(report)
    if report.unmeasured_schedules:
        lines += describe_schedule_sources(report)
    elif report.workload_count is not None:
        kind = "an unchecked" if report.measured_by in VIRTUAL_DEVICES else "a verified"
        count, total = report.schedule_count, report.workload_count
        lines.append(f"{count} of {total} workloads have {kind} schedule")
    if report.untimed_tasks:
        lines.append(f"without a time, as no clock saw their kernels: {', '.join(report.untimed_tasks)}")
    errors = {"TVM's default build": report.error_vs_untuned, "onnxruntime": report.error_vs_onnxruntime}
    known_errors = [f"{error:.1e} against {title}" for title, error in errors.items() if error is not None]
    if known_errors:
        lines.append(f"relative error {', '.join(known_errors)}")
    contests = report.model_contests
    latency_us = contests.latency_us if contests and contests.uses_replacements else None
    if contests and latency_us and latency_us.after is not None:
        count = len(contests.tasks)
        subject = "one task has" if count == 1 else f"{count} tasks have"
        change = f"{format_latency(latency_us.before)} became {format_latency(latency_us.after)}"
        lines.append(f"for the whole model's sake {subject} another of the fastest schedules: {change}")
    return [*lines, *_on_busy_host(report), *describe_skipped_steps(report), *describe_warnings(job)]


def describe_device_use(job: JobStatus) -> str | None:
    """Describe how long the job's devices ran candidates; None if it is not known."""
    use = job.device_use
    if use is None:
        return None
    devices = "1 device" if use.devices == 1 else f"{use.devices} devices"
    waits = f"{format_duration(use.build_wait_sec)} of that for builds"
    return f"{devices}, idle {percent(use.idle_share)} of {format_duration(use.seconds)}, {waits}"


def describe_failures(progress: JobProgress) -> str:
    """Return a text on failed candidates by outcome, and on candidates left unbuilt."""
    failed = ", ".join(f"{count} {outcome}" for outcome, count in progress.failures.items()) or "none"
    return "; ".join(filter(None, [failed, describe_unbuilt(progress)]))


def describe_unbuilt(progress: JobProgress) -> str:
    """Return how many candidates were left unbuilt on purpose; empty if none."""
    count = progress.unbuilt_candidates
    return f"{count} not built: their unrolled code is too large" if count else ""


def describe_skipped_steps(report: FinishReport | None) -> list[str]:
    """Return a line for each step that the job's last stage skipped, with the reason."""
    steps = report.skipped_steps if report else ()
    return [_with_hint(f"not done: {step.step}: {step.reason}", step.hint) for step in steps]


def describe_warnings(job: JobStatus) -> list[str]:
    """Return a line for each warning of the job."""
    lines: list[str] = []
    for problem in job.warnings:
        times = f" ({problem.count} times)" if problem.count > 1 else ""
        lines.append(_with_hint(f"warning: {problem.source}: {problem.message}{times}", problem.hint))
    return lines


def _with_hint(text: str, hint: str) -> str:
    return f"{text}; {hint}" if hint else text


def _gain_from_trials(report: FinishReport) -> list[str]:
    latencies = report.model_contests and report.model_contests.beside_guesses
    if not latencies:
        return []
    guesses_us, exported_us = latencies
    gain = 1 - exported_us / guesses_us
    counts = sorted(report.search_methods.items(), key=lambda item: -item[1])
    sources = (
        f"tasks by how their schedules were found: {', '.join(f'{means} {count}' for means, count in counts)}"
    )
    if gain < LEAST_SHARE:
        return [f"trials won nothing over a job without trials; {sources}"]
    change = f"{format_latency(guesses_us)} became {format_latency(exported_us)}, timed in turn"
    return [f"trials won {percent(gain, 1)} over a job without trials: {change}; {sources}"]


def _on_busy_host(report: FinishReport) -> list[str]:
    contention = report.contention
    if contention is None or not contention.loads:
        return []
    idle, full = contention.loads[0], contention.loads[-1]
    load_words = f"beside {_programs(full.programs)} that compute and stream memory"
    full_latency, idle_latency = format_latency(full.alone_us), format_latency(idle.alone_us)
    takes = f"{load_words} the model takes {full_latency}, {idle_latency} beside none"
    if not contention.tasks:
        return [f"{takes}; what is fastest alone is fastest there, too"]
    count = len(contention.tasks)
    tasks = "one task" if count == 1 else f"{count} tasks"
    loaded_words = f"{format_latency(full.loaded_us)} with other schedules for {tasks}"
    if contention.min_programs is None:
        return [f"{takes}, and {loaded_words}: too little to keep them"]
    wins = f"which win from {_programs(contention.min_programs)} on: apply.py MODEL --set loaded"
    return [f"{takes}, and {loaded_words}, {wins}"]


def _programs(count: int) -> str:
    return "no program" if count == 0 else "one program" if count == 1 else f"{count} programs"
