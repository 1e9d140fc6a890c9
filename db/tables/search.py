"""What searchers keep between the rounds of a task."""

from sqlalchemy import ForeignKey, Index, LargeBinary
from sqlalchemy.orm import Mapped, mapped_column

from db.tables.base import Base, BigId


class SearchState(Base):
    """What a round's searcher left for the task's next round: a task keeps the newest few (ADR 0024)."""

    __tablename__ = "search_states"
    __table_args__ = (Index("ix_search_states_task", "task_id"),)

    round_id: Mapped[int] = mapped_column(BigId, ForeignKey("rounds.id"), primary_key=True)
    task_id: Mapped[int] = mapped_column(BigId, ForeignKey("tasks.id"))
    searcher: Mapped[str]
    blob: Mapped[bytes] = mapped_column(LargeBinary)
