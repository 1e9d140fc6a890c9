"""Data of a job's report."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from mallorn.core.outcomes import NOT_COMPILED
from mallorn.core.values.dataset import Record
from mallorn.core.values.decision_log import LoggedRound, RoundStatus
from mallorn.core.values.job import JobStatus, TaskStatus
from mallorn.results.best_so_far_curve import CurvePoint, curve
from mallorn.results.decision_summary import with_totals
from mallorn.wording.format_values import first_line

FAILURES_READ: Final = 500  # newest failures read for each outcome


@dataclass(frozen=True)
class Failure:
    """Candidates that failed with the same outcome and error message."""

    outcome: str
    words: str
    count: int
    tasks: tuple[str, ...]
    example: str


@dataclass(frozen=True)
class ReportData:
    """A job, its tasks, its rounds with totals (oldest first) and its failures."""

    job: JobStatus
    tasks: Sequence[TaskStatus]
    rounds: Sequence[LoggedRound]
    failures: Sequence[Failure]

    @classmethod
    def of(
        cls,
        job: JobStatus,
        tasks: Sequence[TaskStatus],
        rounds: Iterable[RoundStatus],
        failed: Iterable[Record],
    ) -> "ReportData":
        """Build the data from a job, its tasks, rounds (oldest first) and failed records."""
        return cls(job, tasks, with_totals(rounds, tasks), grouped(failed))

    @property
    def points(self) -> list[CurvePoint]:
        return curve(self.rounds, self.tasks, self.job.created_at)


def grouped(failed: Iterable[Record]) -> list[Failure]:
    """Group failures by outcome and first line of the error, most frequent first.

    Candidates left unbuilt on purpose are skipped, although their outcome is a build error.
    """
    groups: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in failed:
        if (record.error or "").startswith(NOT_COMPILED):
            continue
        groups[record.outcome, first_line(record.error or "")].append(record)
    failures = [
        Failure(
            outcome,
            words,
            len(records),
            tuple(sorted({record.workload_name for record in records})),
            records[0].error or "",
        )
        for (outcome, words), records in groups.items()
    ]
    return sorted(failures, key=lambda failure: (-failure.count, failure.outcome, failure.words))
