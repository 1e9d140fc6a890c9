"""Rounds: planning, leasing with a fencing token, closing, and taking back from the dead."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import ColumnElement, func, select, text, update

from db.clock import now
from db.paging import Page, check_limit, decode_cursor, page
from db.repositories.base import Repository, until
from db.tables import Job, Measurement, Round
from mallorn.core.states import JobState, MeasurementKind, RoundState

OPEN = (RoundState.QUEUED, RoundState.LEASED)
IN_FLIGHT = text("state in ('queued', 'leased')")  # as in the unique index
MAX_LOSSES = 3


@dataclass(frozen=True, slots=True)
class NewRound:
    """A round as the planner wants it."""

    job_id: str
    task_id: int
    workload_id: int
    target_id: int
    index: int
    size: int
    seed: int
    searcher: str
    reason: dict[str, Any]
    cost_model_id: int | None = None


@dataclass(frozen=True, slots=True)
class ExpiredRounds:
    """Rounds whose worker went silent: those queued again, and those given up."""

    returned: list[int]
    poisoned: list[int]


class Rounds(Repository):
    """Rounds of all jobs. `attempt` is the fencing token: whoever comes with an old one is refused."""

    def add(self, new: NewRound) -> Round | None:
        """Queue a round; None while the workload has another one in flight on this target."""
        self.lock_job(new.job_id)
        once = self.insert(Round).values(
            **asdict(new), seen_upto=0, state=RoundState.QUEUED, attempt=0, losses=0, error=""
        )
        once = once.on_conflict_do_nothing(index_elements=["workload_id", "target_id"], index_where=IN_FLIGHT)
        round_id = self.session.scalar(once.returning(Round.id))
        if round_id is None:
            return None
        # Read after the in-flight place is ours: no other round can still be committing rows we would miss.
        newest = select(func.coalesce(func.max(Measurement.id), 0)).where(
            Measurement.workload_id == new.workload_id, Measurement.target_id == new.target_id
        )
        self.changed(update(Round).where(Round.id == round_id).values(seen_upto=newest.scalar_subquery()))
        return self.get(round_id)

    def get(self, round_id: int) -> Round:
        """A round whose id came from the database; raises sqlalchemy.exc.NoResultFound for any other."""
        return self.session.get_one(Round, round_id)

    def next_index(self, job_id: str) -> int:
        """The number of the job's next round."""
        return self.session.execute(
            select(func.coalesce(func.max(Round.index) + 1, 0)).where(Round.job_id == job_id)
        ).scalar_one()

    def claim(self, round_id: int, worker: str, lease_sec: float) -> int | None:
        """Take a queued round of a job that is tuning; the fencing token, or None if it is not to be had."""
        self._lock_job_of(round_id)
        tuning = select(Job.id).where(Job.id == Round.job_id, Job.state == JobState.TUNING).exists()
        free = Round.id == round_id, Round.state == RoundState.QUEUED, tuning
        taken: dict[str, Any] = {
            "state": RoundState.LEASED,
            "attempt": Round.attempt + 1,
            "worker": worker,
            "lease_until": until(lease_sec),
            "started_at": now(),
        }
        claimed = update(Round).where(*free).values(taken).returning(Round.attempt)
        return self.session.execute(claimed).scalar_one_or_none()

    def settle(self, round_id: int, cost_model_id: int | None) -> None:
        """Fix, at the first claim, the version of the cost model that all attempts use."""
        self.changed(update(Round).where(Round.id == round_id).values(cost_model_id=cost_model_id))

    def revise(self, round_id: int, attempt: int, **changes: Any) -> bool:
        """Fix, for this and all later attempts, another way to propose; False when it is no longer ours."""
        return self.changed(update(Round).where(*held(round_id, attempt)).values(changes)) == 1

    def renew(self, round_id: int, attempt: int, lease_sec: float) -> bool:
        """False when the round is no longer ours: taken back or cancelled."""
        return (
            self.changed(update(Round).where(*held(round_id, attempt)).values(lease_until=until(lease_sec)))
            == 1
        )

    def close(
        self,
        round_id: int,
        attempt: int,
        state: RoundState,
        stats: dict[str, Any] | None = None,
        error: str = "",
    ) -> bool:
        """End a round; False when it is no longer ours. Closing as QUEUED hands it back for another try."""
        self._lock_job_of(round_id)
        values: dict[str, Any] = {"state": state, "stats": stats, "error": error, "lease_until": None}
        # Handed back: the next sweep sends it, without waiting for its last message to grow old.
        handed_back = {"worker": None, "sent_at": 0.0}
        values |= handed_back if state is RoundState.QUEUED else {"finished_at": now()}
        return self.changed(update(Round).where(*held(round_id, attempt)).values(values)) == 1

    def expire(self, max_losses: int = MAX_LOSSES) -> ExpiredRounds:
        """Take rounds back from workers that went silent; give a round up after `max_losses` of them.

        A round that its worker handed back itself is not a loss, however often.
        """
        silent = Round.state == RoundState.LEASED, Round.lease_until < now()
        self.lock_jobs(select(Round.job_id).where(*silent))
        return self._lose(silent, "its worker died or went silent", max_losses)

    def lose(self, round_id: int, attempt: int, error: str, max_losses: int = MAX_LOSSES) -> ExpiredRounds:
        """Count a loss of this attempt's round now: it failed in a way that another worker may not."""
        self._lock_job_of(round_id)
        return self._lose(held(round_id, attempt), error, max_losses)

    def _lose(self, which: tuple[ColumnElement[bool], ...], error: str, max_losses: int) -> ExpiredRounds:
        freed: dict[str, Any] = {"lease_until": None, "losses": Round.losses + 1, "error": error}
        poison = freed | {"state": RoundState.POISON, "finished_at": now()}
        queue = freed | {"state": RoundState.QUEUED, "worker": None, "sent_at": now()}
        last = Round.losses + 1 >= max_losses
        lost = update(Round).where(*which, last).values(poison).returning(Round.id)
        kept = update(Round).where(*which).values(queue).returning(Round.id)
        poisoned = sorted(self.session.scalars(lost))
        return ExpiredRounds(returned=sorted(self.session.scalars(kept)), poisoned=poisoned)

    def withdraw(self, job_id: str | None = None) -> Sequence[int]:
        """End rounds that nobody began: of this job, or of all that do not tune and only block others."""
        resting = select(Job.id).where(Job.state != JobState.TUNING)
        whose = Round.job_id.in_(resting) if job_id is None else Round.job_id == job_id
        queued = Round.state == RoundState.QUEUED, whose
        self.lock_jobs(select(Round.job_id).where(*queued))
        ended = {"state": RoundState.CANCELLED, "finished_at": now()}
        return sorted(self.session.scalars(update(Round).where(*queued).values(ended).returning(Round.id)))

    def stale(self, older_than_sec: float) -> Sequence[Round]:
        """Queued rounds of tuning jobs whose last message went out long ago, the oldest first."""
        waiting = Round.state == RoundState.QUEUED, Round.sent_at < until(-older_than_sec)
        query = select(Round).join(Job, Job.id == Round.job_id).where(*waiting, Job.state == JobState.TUNING)
        return self.session.scalars(query.order_by(Job.priority.desc(), Round.id)).all()

    def mark_sent(self, round_ids: Sequence[int]) -> None:
        """A message for these rounds goes out now."""
        self.changed(update(Round).where(Round.id.in_(round_ids)).values(sent_at=now()))

    def count_open(self, target_id: int) -> int:
        """How many rounds of a target are queued or leased, of whatever job."""
        is_open = Round.target_id == target_id, Round.state.in_(OPEN)
        return self.session.scalar(select(func.count()).select_from(Round).where(*is_open)) or 0

    def in_flight(self, job_id: str | None = None, target_id: int | None = None) -> Sequence[Round]:
        """Open rounds of a job, of a target, or of all."""
        query = select(Round).where(Round.state.in_(OPEN)).order_by(Round.id)
        if job_id is not None:
            query = query.where(Round.job_id == job_id)
        if target_id is not None:
            query = query.where(Round.target_id == target_id)
        return self.session.scalars(query).all()

    def list(self, job_id: str, cursor: str | None = None, limit: int = 50) -> Page[Round]:
        """A job's rounds, newest first."""
        query = select(Round).where(Round.job_id == job_id).order_by(Round.index.desc())
        if cursor is not None:
            query = query.where(Round.index < decode_cursor(cursor, int)[0])
        found = self.session.scalars(query.limit(check_limit(limit) + 1)).all()
        return page(found, limit, lambda row: (row.index,))

    def cancel_open(self, job_id: str) -> int:
        """End all open rounds of a job; a worker that holds one learns it from its next renewal."""
        self.lock_job(job_id)
        is_open = Round.job_id == job_id, Round.state.in_(OPEN)
        values = {"state": RoundState.CANCELLED, "lease_until": None, "finished_at": now()}
        return self.changed(update(Round).where(*is_open).values(values))

    def done_slots(self, round_id: int) -> set[int]:
        """Places whose trial is committed, by whichever attempt."""
        trial = Measurement.round_id == round_id, Measurement.kind == MeasurementKind.TRIAL
        return set(self.session.scalars(select(Measurement.slot).where(*trial)))

    def _lock_job_of(self, round_id: int) -> None:
        self.lock_jobs(select(Round.job_id).where(Round.id == round_id))


def held(round_id: int, attempt: int) -> tuple[ColumnElement[bool], ...]:
    """True of a round that is still leased to this attempt."""
    return Round.id == round_id, Round.attempt == attempt, Round.state == RoundState.LEASED
