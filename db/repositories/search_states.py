"""What searchers keep between the rounds of a task of a job."""

from typing import Final

from sqlalchemy import delete, func, select

from db.repositories.base import Repository
from db.tables import Round, SearchState

#: Of each task: what its last round left, and what that round was given, so that it can be recomputed.
KEPT: Final = 2


class SearchStates(Repository):
    """One state a round at most; it goes with its job, or as newer ones come."""

    def newest(self, task_id: int, searcher: str) -> int | None:
        """The last round of a task from which this searcher left something."""
        same = SearchState.task_id == task_id, SearchState.searcher == searcher
        found: int | None = self.session.scalar(select(func.max(SearchState.round_id)).where(*same))
        return found

    def left_by(self, round_id: int | None) -> bytes | None:
        """What a round left; None where it left nothing, or nothing is kept any more."""
        query = select(SearchState.blob).where(SearchState.round_id == round_id)
        return self.session.scalar(query)

    def keep(self, row: Round, state: bytes) -> None:
        """Store what a round leaves, in the transaction that closes it."""
        kept = {"round_id": row.id, "task_id": row.task_id, "searcher": row.searcher, "blob": state}
        self.session.execute(self.insert(SearchState).values(**kept))
        of_task = select(SearchState.round_id).where(SearchState.task_id == row.task_id)
        newest = of_task.order_by(SearchState.round_id.desc()).limit(KEPT).subquery()
        old = SearchState.round_id.not_in(select(newest.c.round_id))
        self.changed(delete(SearchState).where(SearchState.task_id == row.task_id, old))
