"""Devices, workers, periodic loops and leases."""

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from mallorn.core.values.fleet import DeviceInfo, DeviceMachine, WorkerInfo
from mallorn.db.tables.base import Base, IdPk, Timestamp, ValueType, partial_index


class Device(Base):
    """A measuring endpoint: an RPC server under a tracker key, with a host fingerprint."""

    __tablename__ = "devices"

    id: Mapped[IdPk]
    name: Mapped[str] = mapped_column(unique=True)
    target_id: Mapped[int] = mapped_column(ForeignKey("targets.id"))
    host_id: Mapped[str]  # equal on two processes of one machine
    host_class: Mapped[str]  # equal on machines whose times compare
    threads: Mapped[int]
    tvm_version: Mapped[str]
    info: Mapped[DeviceInfo] = mapped_column(ValueType(DeviceInfo))
    machine: Mapped[DeviceMachine | None] = mapped_column(ValueType(DeviceMachine))
    last_seen: Mapped[Timestamp]
    changed_at: Mapped[Timestamp | None]  # when it last came, became another machine, or stopped


class Worker(Base):
    """A worker; its row is renewed by the same thread that renews its lease."""

    __tablename__ = "workers"

    id: Mapped[str] = mapped_column(primary_key=True)  # host:pid:start
    host_id: Mapped[str]
    info: Mapped[WorkerInfo] = mapped_column(ValueType(WorkerInfo))
    busy_with: Mapped[str] = mapped_column(default="")
    started_at: Mapped[Timestamp]
    last_seen: Mapped[Timestamp]
    changed_at: Mapped[Timestamp | None]  # when it last came, or what it reports of itself changed


class Tick(Base):
    """A periodic loop of the service, and the times of its turns."""

    __tablename__ = "ticks"

    name: Mapped[str] = mapped_column(primary_key=True)  # name of the loop
    begun_at: Mapped[Timestamp]
    since: Mapped[Timestamp]  # from then on turns followed each other without a gap
    done_at: Mapped[Timestamp | None]  # when a turn last ended without an error


class LeaseRow(Base):
    """Work for one process at a time, under a lease. Rows stay, so `attempt` only grows."""

    __tablename__ = "held_work"
    __table_args__ = (
        partial_index("ix_held_work_until", "until", condition="until is not null"),
        partial_index("ix_held_work_waiting", "due_at", condition="until is null and due_at is not null"),
    )

    kind: Mapped[str] = mapped_column(primary_key=True)  # mallorn.core.states.WorkKind
    subject: Mapped[str] = mapped_column(primary_key=True)  # the id of a round, a job or a target
    job_id: Mapped[str | None] = mapped_column(ForeignKey("jobs.id"))  # whose row is locked before this one
    attempt: Mapped[int] = mapped_column(default=0)  # fencing token: an older one is refused
    # Since the work was opened: its interruptions, and how often its holder died or hung.
    losses: Mapped[int] = mapped_column(default=0)
    deaths: Mapped[int] = mapped_column(default=0, server_default="0")
    # Workers whose hosts were at fault.
    left_by: Mapped[list[str] | None] = mapped_column(ValueType(list[str]))
    holder: Mapped[str | None]
    until: Mapped[Timestamp | None]  # when the lease expires; None: no process holds it
    due_at: Mapped[Timestamp | None]  # from when on workers may claim it; None: they may not
