"""What the schedules of a job without a search rest on, task by task."""

from collections import Counter
from typing import Final

from mallorn.core.values.report import Answered, FinishReport, Source
from mallorn.wording.units import Column, latency

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


def rests_on(report: FinishReport) -> list[str]:
    """How many tasks rest on what, in the order in which sources are asked, and whether they were checked."""
    answers = report.answers.values()
    if not answers:
        return []
    counts = Counter(answered.source for answered in answers)
    parts = [f"{counts[source]} on {RESTS_ON[source]}" for source in Source if counts[source]]
    checked = sum(answered.checked for answered in answers)
    done = "yes" if checked == len(answers) else f"{checked} of them" if checked else "no"
    of = len(answers) if report.of is None else report.of
    return [
        f"{len(answers)} of {of} tasks have a schedule, and none was timed for it: {', '.join(parts)}",
        f"built and checked: {done}",
    ]
