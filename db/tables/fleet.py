"""Who measures, who works, who holds what."""

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from db.tables.base import Base, IdPk, Timestamp
from db.tables.values import ValueType
from mallorn.core.values.fleet import DeviceInfo, WorkerInfo


class Device(Base):
    """One measuring endpoint: an RPC server under a tracker key, with a host fingerprint."""

    __tablename__ = "devices"

    id: Mapped[IdPk]
    name: Mapped[str] = mapped_column(unique=True)
    target_id: Mapped[int] = mapped_column(ForeignKey("targets.id"))
    host_id: Mapped[str]  # equal on two processes of one machine
    host_class: Mapped[str]  # equal on machines whose times compare
    threads: Mapped[int]
    tvm_version: Mapped[str]
    info: Mapped[DeviceInfo] = mapped_column(ValueType(DeviceInfo))
    last_seen: Mapped[Timestamp]


class Worker(Base):
    """A worker slot; its row is renewed by the same thread that renews its lease."""

    __tablename__ = "workers"

    id: Mapped[str] = mapped_column(primary_key=True)  # host:pid:start
    host_id: Mapped[str]
    info: Mapped[WorkerInfo] = mapped_column(ValueType(WorkerInfo))
    busy_with: Mapped[str] = mapped_column(default="")
    started_at: Mapped[Timestamp]
    last_seen: Mapped[Timestamp]


class Lease(Base):
    """A named single-flight right (`plan:target:<id>`, `export:<job>`), with a fencing token."""

    __tablename__ = "leases"

    name: Mapped[str] = mapped_column(primary_key=True)
    holder: Mapped[str]
    token: Mapped[int]
    until: Mapped[Timestamp]
