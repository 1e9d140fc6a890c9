"""The rounds of a job that is followed: each look asks only for what may have changed."""

from mallorn.core.values.decision_log import RoundStatus
from mallorn.job import Job

PAGE = 50


class RoundsSoFar:
    """Keeps a job's rounds; `refresh` fetches the newest ones, back to the oldest that was still open."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._rows: dict[int, RoundStatus] = {}
        self._settled = -1  # up to this index every round is over

    def refresh(self) -> list[RoundStatus]:
        """All rounds, oldest first."""
        for row in self._job.rounds(page_size=PAGE):
            if row.index <= self._settled:
                break
            self._rows[row.index] = row
        while (next_one := self._rows.get(self._settled + 1)) is not None and not next_one.state.open:
            self._settled += 1
        return [self._rows[index] for index in sorted(self._rows)]

    def forget(self) -> None:
        """Ask for everything again: the finish may have found that a round's best computes wrong results."""
        self._rows.clear()
        self._settled = -1
