"""What a later round need not work out again: expensive views of candidates, and what searchers learned."""

from sqlalchemy import ForeignKey, Index, LargeBinary, SmallInteger
from sqlalchemy.orm import Mapped, mapped_column

from db.tables.base import Base, BigId


class FeatureRow(Base):
    """A candidate in a view that needs a compiler. A cache: rows may be deleted at any time."""

    __tablename__ = "feature_rows"

    workload_id: Mapped[int] = mapped_column(BigId, ForeignKey("workloads.id"), primary_key=True)
    target_id: Mapped[int] = mapped_column(BigId, ForeignKey("targets.id"), primary_key=True)
    view: Mapped[str] = mapped_column(primary_key=True)  # its name, e.g. "statements"
    version: Mapped[int] = mapped_column(SmallInteger, primary_key=True)  # of the view
    tvm_version: Mapped[str] = mapped_column(primary_key=True)  # with the digest of the code around it
    candidate: Mapped[str] = mapped_column(primary_key=True)  # searchers.space.Candidate.key
    numbers: Mapped[bytes | None] = mapped_column(LargeBinary)  # zstd of float32; None: cannot be lowered


class SearchState(Base):
    """What a round's searcher left for the task's next round: a task keeps the newest few (ADR 0024)."""

    __tablename__ = "search_states"
    __table_args__ = (Index("ix_search_states_task", "task_id"),)

    round_id: Mapped[int] = mapped_column(BigId, ForeignKey("rounds.id"), primary_key=True)
    task_id: Mapped[int] = mapped_column(BigId, ForeignKey("tasks.id"))
    searcher: Mapped[str]
    blob: Mapped[bytes] = mapped_column(LargeBinary)
