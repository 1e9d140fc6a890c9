"""Tables of a job's tasks: MetaSchedule's table, families, and answers without a search."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from mallorn.core.values.finish_report import Answered, FinishReport, Source
from mallorn.core.values.job import TaskStatus
from mallorn.wording.format_values import Column, latency

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
AnsweredTask = tuple[str, Answered]
ANSWER_COLUMNS: Final = (
    Column[AnsweredTask]("TASK", lambda row: row[0]),
    Column[AnsweredTask]("ANSWERED BY", lambda row: row[1].source),
    Column[AnsweredTask]("SURE", lambda row: row[1].sure),
    Column[AnsweredTask](
        "EXPECTED", lambda row: "" if row[1].expected_us is None else latency(row[1].expected_us)
    ),
    Column[AnsweredTask]("CHECKED", lambda row: "yes" if row[1].checked else "no"),
    Column[AnsweredTask]("BECAUSE", lambda row: row[1].because),
)


@dataclass(frozen=True, slots=True)
class FamilyRow:
    """Tasks that share a cost model for the same reason."""

    family: str
    why: str
    members: tuple[int, ...]


FAMILY_COLUMNS: Final = (
    Column[FamilyRow]("Family", lambda kin: kin.family),
    Column[FamilyRow]("IDs", lambda kin: ", ".join(map(str, kin.members))),
    Column[FamilyRow]("Why", lambda kin: kin.why),
)


def task_columns(tasks: Iterable[TaskStatus]) -> Sequence[Column[TaskStatus]]:
    """Return the table's columns, with one for stock MetaSchedule's times if any are known."""
    if all(task.stock_us is None for task in tasks):
        return TASK_COLUMNS
    return *TASK_COLUMNS, STOCK_COLUMN


def stock_words(tasks: Iterable[TaskStatus]) -> str:
    """Return the weighted latency in stock MetaSchedule's logs and here; empty if no logs."""
    pairs = [
        (task.weight * task.stock_us, task.weight * task.latency_us)
        for task in tasks
        if task.stock_us is not None and task.latency_us is not None
    ]
    if not pairs:
        return ""
    stock_us, here_us = (latency(sum(side)) for side in zip(*pairs, strict=True))
    task_count = "1 task" if len(pairs) == 1 else f"{len(pairs)} tasks"
    return f"{stock_us} for {task_count}, on a host that its logs do not name; {here_us} here"


def kinships(tasks: Iterable[TaskStatus]) -> list[FamilyRow]:
    """Return one row per family and reason; a family's tasks may have different reasons."""
    members: dict[tuple[str, str], list[int]] = {}
    for task in tasks:
        if task.family:
            members.setdefault((task.family, task.family_why), []).append(task.index)
    return [FamilyRow(family, why, tuple(indices)) for (family, why), indices in sorted(members.items())]


def rests_on(report: FinishReport) -> list[str]:
    """Return lines on what the tasks' schedules are based on and whether they were checked."""
    answers = report.answers.values()
    if not answers:
        return []
    counts = Counter(answered.source for answered in answers)
    parts = [f"{counts[source]} on {RESTS_ON[source]}" for source in Source if counts[source]]
    checked = sum(answered.checked for answered in answers)
    answer = "yes" if checked == len(answers) else f"{checked} of them" if checked else "no"
    total = len(answers) if report.of is None else report.of
    return [
        f"{len(answers)} of {total} tasks have a schedule, and none was timed for it: {', '.join(parts)}",
        f"built and checked: {answer}",
    ]
