"""Rounds: planning, beginning and closing, behind the fence of who holds them."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, func, select, text, update

from db.database_clock import now
from db.repositories.base import Repository
from db.repositories.leases import Leases, LeaseToken, Token, WorkItem, held
from db.tables import Job, Measurement, Round
from mallorn.core.job_options import DETACHED
from mallorn.core.states import JobState, MeasurementKind, RoundState, WorkKind
from mallorn.core.values.decision_log import PlannedRound, RoundStats

OPEN = (RoundState.QUEUED, RoundState.LEASED)
IN_FLIGHT = text("state in ('queued', 'leased')")  # as in the unique index


class Rounds(Repository):
    """Rounds of all jobs. Whoever comes with an old token is refused."""

    def add(self, job: Job, workload_id: int, planned: PlannedRound, searcher: str) -> Round | None:
        """Queue a round; None while the workload has another one in flight on this target."""
        self.lock_job(job.id)
        once = self.insert(Round).values(
            job_id=job.id,
            task_id=planned.task_id,
            workload_id=workload_id,
            target_id=job.target_id,
            index=planned.index,
            size=planned.size,
            seed=planned.seed,
            searcher=searcher,
            reason=planned.reason,
            seen_upto=0,
            state=RoundState.QUEUED,
            error="",
        )
        once = once.on_conflict_do_nothing(index_elements=["workload_id", "target_id"], index_where=IN_FLIGHT)
        round_id = self.session.scalar(once.returning(Round.id))
        if round_id is None:
            return None
        # Read after the in-flight place is ours: no other round can still be committing rows we would miss.
        newest = newest_of(workload_id, job.target_id).scalar_subquery()
        self.changed(update(Round).where(Round.id == round_id).values(seen_upto=newest))
        Leases(self.session).open(WorkItem.round(round_id), job.id)
        return self.get(round_id)

    def get(self, round_id: int) -> Round:
        """A round whose id came from the database; raises sqlalchemy.exc.NoResultFound for any other."""
        return self.session.get_one(Round, round_id)

    def queued(self, job_id: str) -> Sequence[int]:
        """The ids of the job's rounds that nobody holds, oldest first."""
        mine = Round.job_id == job_id, Round.state == RoundState.QUEUED
        return self.session.scalars(select(Round.id).where(*mine).order_by(Round.id)).all()

    def next_index(self, job_id: str) -> int:
        """The number of the job's next round."""
        return self.session.execute(
            select(func.coalesce(func.max(Round.index) + 1, 0)).where(Round.job_id == job_id)
        ).scalar_one()

    def claim(self, round_id: int, worker: str, lease_sec: float) -> LeaseToken | None:
        """Take a queued round of a job that is tuning; None if it is not to be had."""
        self._lock_job_of(round_id)
        tuning = select(Job.id).where(Job.id == Round.job_id, Job.state == JobState.TUNING).exists()
        free = Round.id == round_id, Round.state == RoundState.QUEUED, tuning
        begun = {"state": RoundState.LEASED, "worker": worker, "started_at": now()}
        if not self.changed(update(Round).where(*free).values(begun)):
            return None
        return Leases(self.session).claim(WorkItem.round(round_id), worker, lease_sec)

    def settle(self, round_id: int, cost_model_id: int | None, state_from: int | None = None) -> None:
        """Fix, at the first claim, what all attempts use: the cost model's version, and the round from whose
        state the searcher goes on.
        """
        settled = {"cost_model_id": cost_model_id, "state_from": state_from}
        self.changed(update(Round).where(Round.id == round_id).values(settled))

    def revise(self, round_id: int, token: Token, **changes: Any) -> bool:
        """Fix, for this and all later attempts, another way to propose; False when it is no longer ours."""
        self._lock_job_of(round_id)
        ours = Round.id == round_id, held(LeaseToken(WorkItem.round(round_id), token))
        return self.changed(update(Round).where(*ours).values(changes)) == 1

    def close(
        self,
        round_id: int,
        token: Token,
        state: RoundState,
        stats: RoundStats | None = None,
        error: str = "",
    ) -> bool:
        """End a round; False when it is no longer ours. Closing as QUEUED hands it back for another try."""
        self._lock_job_of(round_id)
        hold, back = LeaseToken(WorkItem.round(round_id), token), state is RoundState.QUEUED
        ours = Leases(self.session).give_back(hold) if back else Leases(self.session).end(hold)
        return ours and self.move(round_id, state, error=error, stats=stats)

    def move(self, round_id: int, state: RoundState, **values: Any) -> bool:
        """Put a round into a state, in the transaction that let go of it."""
        values |= {"worker": None} if state is RoundState.QUEUED else {"finished_at": now()}
        return self.changed(update(Round).where(Round.id == round_id).values(state=state, **values)) == 1

    def withdraw(self, job_id: str | None = None) -> Sequence[int]:
        """End rounds that nobody began: of this job, or of all that do not tune and only block others."""
        resting = select(Job.id).where(Job.state != JobState.TUNING)
        whose = Round.job_id.in_(resting) if job_id is None else Round.job_id == job_id
        queued = Round.state == RoundState.QUEUED, whose
        self.lock_jobs(select(Round.job_id).where(*queued))
        return self._cancel(*queued)

    def count_open(self, target_id: int) -> int:
        """How many rounds of a target are queued or leased for its devices, of whatever job."""
        theirs = Job.id == Round.job_id, Job.options["measurer"].as_string() == DETACHED
        is_open = Round.target_id == target_id, Round.state.in_(OPEN), ~select(Job.id).where(*theirs).exists()
        return self.session.scalar(select(func.count()).select_from(Round).where(*is_open)) or 0

    def stats(self, job_id: str) -> Sequence[RoundStats]:
        """The figures of a job's rounds that were measured to their end."""
        query = select(Round.stats).where(Round.job_id == job_id, Round.stats.is_not(None))
        return [stats for stats in self.session.scalars(query.order_by(Round.index)) if stats is not None]

    def cancel_open(self, job_id: str) -> int:
        """End all open rounds of a job; a worker that holds one learns it from its next renewal."""
        self.lock_job(job_id)
        return len(self._cancel(Round.job_id == job_id, Round.state.in_(OPEN)))

    def _cancel(self, *which: ColumnElement[bool]) -> Sequence[int]:
        ended = update(Round).where(*which).values(state=RoundState.CANCELLED, finished_at=now())
        ids = sorted(self.session.scalars(ended.returning(Round.id)))
        Leases(self.session).rest([WorkKind.ROUND], [str(round_id) for round_id in ids])
        return ids

    def done_slots(self, round_id: int) -> set[int]:
        """Places whose trial is committed, by whichever attempt."""
        trial = Measurement.round_id == round_id, Measurement.kind == MeasurementKind.TRIAL
        return set(self.session.scalars(select(Measurement.slot).where(*trial)))

    def _lock_job_of(self, round_id: int) -> None:
        self.lock_jobs(select(Round.job_id).where(Round.id == round_id))


def newest_of(workload_id: int, target_id: int) -> Select[int]:
    """The id of a workload's newest measurement on a target, or 0."""
    same = Measurement.workload_id == workload_id, Measurement.target_id == target_id
    return select(func.coalesce(func.max(Measurement.id), 0)).where(*same)
