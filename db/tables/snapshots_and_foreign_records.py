"""Snapshots, imported datasets, and other tuners' logs."""

from sqlalchemy import ForeignKey, Index, LargeBinary
from sqlalchemy.orm import Mapped, mapped_column

from mallorn.db.tables.base import Base, BigId, CreatedAt, IdPk, Json, partial_index


class SourceDataset(Base):
    """A Mallorn dataset: this one (`own`), or one from which rows were imported."""

    __tablename__ = "sources"
    __table_args__ = (
        # Exactly one row is this dataset.
        partial_index("uq_sources_own", "own", condition="own", unique=True),
    )

    id: Mapped[IdPk]
    key: Mapped[str] = mapped_column(unique=True)  # a UUID, hex
    own: Mapped[bool]


class Snapshot(Base):
    """An immutable set of measurements: those with ids up to `upto` that `filter` selects."""

    __tablename__ = "snapshots"

    id: Mapped[IdPk]
    name: Mapped[str] = mapped_column(unique=True)
    upto: Mapped[int] = mapped_column(BigId)  # id of the newest measurement that it may hold
    filter: Mapped[Json]  # mallorn.db.repositories.snapshots.Selection
    rows: Mapped[int] = mapped_column(BigId)
    digest: Mapped[str]  # of the rows in order, equal in every dataset that holds them
    created_at: Mapped[CreatedAt]


class ForeignTask(Base):
    """A tensor program as another tuner's log names it. Mallorn cannot build it."""

    __tablename__ = "foreign_tasks"

    id: Mapped[IdPk]
    key: Mapped[str] = mapped_column(unique=True)  # hash of format, task and target
    format: Mapped[str]  # mallorn.research.tuner_logs: `metaschedule` or `tenset`
    task: Mapped[str]  # the log's own key
    target: Mapped[str]  # as the log writes it


class ForeignRecord(Base):
    """A measurement from another tuner's log. It never becomes a schedule."""

    __tablename__ = "foreign_records"
    __table_args__ = (Index("ix_foreign_records_task", "task_id", "id"),)

    id: Mapped[IdPk]
    key: Mapped[bytes] = mapped_column(LargeBinary, unique=True)  # 16 bytes: hash of the whole record
    task_id: Mapped[int] = mapped_column(ForeignKey("foreign_tasks.id"))
    steps: Mapped[bytes] = mapped_column(LargeBinary)  # zstd of the candidate's steps as JSON
    outcome: Mapped[str]  # mallorn.core.outcomes.Outcome
    failure: Mapped[str | None]  # the log's failure code
    latency_us: Mapped[float | None]  # median of the run times
    run_us: Mapped[bytes | None] = mapped_column(LargeBinary)  # mallorn.db.measurement_codec.pack_times
    measured_at: Mapped[float | None]  # None: not in the log
    created_at: Mapped[CreatedAt]  # when it was imported
