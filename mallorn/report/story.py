"""All that a report tells of a job, asked for once."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from mallorn.core.outcomes import Outcome
from mallorn.history import Point, curve
from mallorn.job import Job
from mallorn.words import first_line

FAILURES_READ: Final = 500  # of each outcome, the newest
Row = dict[str, Any]


@dataclass(frozen=True)
class Failure:
    """Candidates that failed in the same words."""

    outcome: str
    words: str
    count: int
    tasks: tuple[str, ...]
    example: str


@dataclass(frozen=True)
class Story:
    """A job, its tasks, its rounds with totals (oldest first) and its failures."""

    job: Row
    tasks: Sequence[Row]
    rounds: Sequence[Row]
    failures: Sequence[Failure]

    @property
    def points(self) -> list[Point]:
        return curve(self.rounds, self.tasks, self.job["created_at"])


def gather(job: Job) -> Story:
    """Ask the coordinator for everything."""
    rounds, tasks, body = job.explain(), job.tasks(), job.refresh()
    failed = [
        record
        for outcome in body["progress"]["failures"]
        for record in islice(job.measurements(Outcome(outcome)), FAILURES_READ)
    ]
    return Story(body, tasks, rounds, grouped(failed))


def grouped(failed: Sequence[Row]) -> list[Failure]:
    """Failures by outcome and the first line of their text, most frequent first."""
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for record in failed:
        groups[record["outcome"], first_line(record["error"] or "")].append(record)
    found = [
        Failure(
            outcome,
            words,
            len(records),
            tuple(sorted({record["workload_name"] for record in records})),
            records[0]["error"] or "",
        )
        for (outcome, words), records in groups.items()
    ]
    return sorted(found, key=lambda failure: (-failure.count, failure.outcome, failure.words))
