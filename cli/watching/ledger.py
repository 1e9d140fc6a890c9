"""The rounds of a job that is followed: each look asks only for what may have changed."""

from typing import Any

from mallorn.core.states import RoundState
from mallorn.job import Job

PAGE = 50


class Ledger:
    """Keeps a job's rounds; `refresh` fetches the newest ones, back to the oldest that was still open."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._rows: dict[int, dict[str, Any]] = {}
        self._settled = -1  # up to this index every round is over

    def refresh(self) -> list[dict[str, Any]]:
        """All rounds, oldest first."""
        for row in self._job.rounds(page_size=PAGE):
            if row["index"] <= self._settled:
                break
            self._rows[row["index"]] = row
        while (row := self._rows.get(self._settled + 1, {})) and not RoundState(row["state"]).open:
            self._settled += 1
        return [self._rows[index] for index in sorted(self._rows)]

    def forget(self) -> None:
        """Ask for everything again: the finish may have found that a round's best computes wrong results."""
        self._rows.clear()
        self._settled = -1
