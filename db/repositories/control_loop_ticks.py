"""Times at which the service's periodic loops ran, by the database's clock (ADR 0044)."""

from collections.abc import Collection, Mapping
from typing import Any, Final

from sqlalchemy import and_, case, or_, select, update

from mallorn.db.database_clock import now
from mallorn.db.repositories.base import Repository, seconds_from_now
from mallorn.db.tables import Device, Job, LeaseRow, Tick, Worker

#: A longer time without a turn is a gap: no process ran, or the clock was set forward.
GAP_SEC: Final = 30.0
#: A stored time further in the future than this means that the clock was set back.
AHEAD_SEC: Final = 1.0


class LoopTicks(Repository):
    def begin_turn(self, name: str, every_sec: float) -> float | None:
        """Record that a turn of a loop begins; return how long its turns had no gap.

        The result is in seconds: 0 in the first turn and after a gap or a clock step. It is
        None if another turn began just now, so that this one must not run.
        """
        insert = self.insert(Tick).values(name=name, begun_at=now(), since=now())
        start = insert.excluded.begun_at
        is_set_back = Tick.begun_at > start + AHEAD_SEC
        # A second gap in a row does not reset `since`, so that rare turns count, too.
        has_gap = and_(Tick.since < Tick.begun_at, Tick.begun_at < start - GAP_SEC)
        upsert = insert.on_conflict_do_update(
            index_elements=["name"],
            set_={"begun_at": start, "since": case((or_(is_set_back, has_gap), start), else_=Tick.since)},
            where=or_(is_set_back, Tick.begun_at < start - every_sec / 2),
        )
        statement = upsert.returning(Tick.begun_at - Tick.since)
        steady_sec: float | None = self.session.scalar(statement)
        return None if steady_sec is None else max(0.0, steady_sec)

    def record_turn_end(self, name: str) -> None:
        self.execute_and_count(update(Tick).where(Tick.name == name).values(done_at=now()))

    def running_since(self, name: str) -> float:
        """Return since when a loop runs without a gap: 0 for never, now if it stopped."""
        has_stopped = Tick.begun_at < seconds_from_now(-GAP_SEC)
        since = select(case((has_stopped, now()), else_=Tick.since)).where(Tick.name == name)
        return self.session.scalar(since) or 0.0

    def ages_sec(self, names: Collection[str]) -> Mapping[str, float | None]:
        """Return how long ago, in seconds, each loop last ended a turn; None if never."""
        ages = select(Tick.name, (now() - Tick.done_at).label("age")).where(Tick.name.in_(names))
        rows = self.session.execute(ages)
        return dict.fromkeys(names) | {row.name: row.age for row in rows}

    def correct_future_times(self, lease_sec: float) -> None:
        """Correct times of jobs, leases, devices and workers that are in the future.

        They were stored before the clock was set back, and would delay the loops.
        """
        # By column: how far ahead its times may be, and the value that replaces later ones.
        limits: list[tuple[Any, float, Any]] = [
            (Job.planned_at, 0.0, None),
            (LeaseRow.until, lease_sec, seconds_from_now(lease_sec)),
            *((column, 0.0, now()) for column in (LeaseRow.due_at, Device.last_seen, Worker.last_seen)),
            *((column, 0.0, now()) for column in (Device.changed_at, Worker.changed_at)),
        ]
        for column, ahead_sec, value in limits:
            is_later = column > seconds_from_now(ahead_sec + AHEAD_SEC)
            self.execute_and_count(update(column.class_).where(is_later).values({column.key: value}))
