"""When the loops that must live have their turns, by the database's clock alone (ADR 0044)."""

from collections.abc import Collection, Mapping
from typing import Any, Final

from sqlalchemy import ColumnElement, and_, case, or_, select, update

from db.database_clock import now
from db.repositories.base import Repository, until
from db.tables import Device, Job, LeaseRow, Tick, Worker

#: Nobody looked for so long, or the clock was set forward.
GAP_SEC: Final = 30.0
#: Further ahead than this no moment lies by itself: the clock was set back.
AHEAD_SEC: Final = 1.0


class LoopTicks(Repository):
    def begin(self, name: str, every_sec: float) -> float | None:
        """For how long, in seconds, its turns have been coming; None where one began just now.

        It is 0 in the first turn, and in the first after a gap or a step of the clock.
        """
        insert = self.insert(Tick).values(name=name, begun_at=now(), since=now())
        began = insert.excluded.begun_at
        set_back = Tick.begun_at > began + AHEAD_SEC
        # One gap after the other is no reason to begin anew each time: where turns are rare they still count.
        gap = and_(Tick.since < Tick.begun_at, Tick.begun_at < began - GAP_SEC)
        upsert = insert.on_conflict_do_update(
            index_elements=["name"],
            set_={"begun_at": began, "since": case((or_(set_back, gap), began), else_=Tick.since)},
            where=or_(set_back, Tick.begun_at < began - every_sec / 2),
        )
        steady = upsert.returning(Tick.begun_at - Tick.since)
        found: float | None = self.session.scalar(steady)
        return None if found is None else max(0.0, found)

    def done(self, name: str) -> None:
        """All of its turn is done."""
        self.changed(update(Tick).where(Tick.name == name).values(done_at=now()))

    def since(self, name: str) -> float:
        """From when on its turns have been coming: from now, where they stopped; 0 where none ever came."""
        stopped = Tick.begun_at < until(-GAP_SEC)
        since = select(case((stopped, now()), else_=Tick.since)).where(Tick.name == name)
        return self.session.scalar(since) or 0.0

    def ages_sec(self, names: Collection[str]) -> Mapping[str, float | None]:
        """How long ago each had a turn that was done; None: never."""
        aged = select(Tick.name, (now() - Tick.done_at).label("age")).where(Tick.name.in_(names))
        rows = self.session.execute(aged)
        return dict.fromkeys(names) | {row.name: row.age for row in rows}

    def pull_back(self, lease_sec: float) -> None:
        """After the clock was set back: what lies ahead of it would be waited for until it is there again."""
        self._pull(Job.planned_at, None, ahead=AHEAD_SEC)
        self._pull(LeaseRow.until, until(lease_sec), ahead=lease_sec + AHEAD_SEC)
        self._pull(LeaseRow.sent_at, now(), ahead=AHEAD_SEC)
        for table in (Device, Worker):
            self._pull(table.last_seen, now(), ahead=AHEAD_SEC)

    def _pull(self, column: Any, to: ColumnElement[float] | None, ahead: float) -> None:
        self.changed(update(column.class_).where(column > until(ahead)).values({column.key: to}))
