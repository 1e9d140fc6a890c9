"""The cache of views of candidates that are expensive to compute."""

from sqlalchemy import ForeignKey, LargeBinary, SmallInteger
from sqlalchemy.orm import Mapped, mapped_column

from db.tables.base import Base, BigId


class FeatureRow(Base):
    """A candidate in a view that needs a compiler. A cache: rows may be deleted at any time."""

    __tablename__ = "feature_rows"

    workload_id: Mapped[int] = mapped_column(BigId, ForeignKey("workloads.id"), primary_key=True)
    target_id: Mapped[int] = mapped_column(BigId, ForeignKey("targets.id"), primary_key=True)
    view: Mapped[str] = mapped_column(primary_key=True)  # its name, e.g. "statements"
    version: Mapped[int] = mapped_column(SmallInteger, primary_key=True)  # of the view
    tvm_version: Mapped[str] = mapped_column(primary_key=True)  # another compiler makes another program
    candidate: Mapped[str] = mapped_column(primary_key=True)  # workers.search.space.Candidate.key
    numbers: Mapped[bytes | None] = mapped_column(LargeBinary)  # zstd of float32; None: cannot be lowered
