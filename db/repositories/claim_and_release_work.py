"""What it means for rounds and jobs that work is claimed, given back, lost, or failed for good."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import func, select

from db.repositories.base import ERROR_CHARS, Repository
from db.repositories.fail_pause_cancel_job import fail_job, failure, pause_job
from db.repositories.job_events_and_warnings import Events
from db.repositories.jobs import STATES, Jobs
from db.repositories.leases import MAX_DEATHS, MAX_LOSSES, Leases, LeaseToken, Loss, WorkItem
from db.repositories.rounds import Rounds
from db.repositories.workers import Workers
from db.tables import Job, LeaseRow
from mallorn.core.errors import MallornError
from mallorn.core.states import JobState, RoundState, WorkKind
from mallorn.core.values.event import FailedEvent, RoundPoisonedEvent, RoundReturnedEvent, StageReturnedEvent

SILENT: Final = "its worker died or went silent"


class WorkItems(Repository):
    """Rounds and stages by who works at them. Every method but `claim` does nothing for an old hold."""

    def claim(self, item: WorkItem, worker: str, lease_sec: float) -> LeaseToken | None:
        """Take a round or a stage; None if another has it, or its job is in no state for it.

        Of imports the one whose turn it is.
        """
        if item.kind is WorkKind.IMPORT:
            item = WorkItem(WorkKind.IMPORT, self._begin_import(item.subject))
        if item.kind is WorkKind.ROUND:
            return Rounds(self.session).claim(int(item.subject), worker, lease_sec)
        return Jobs(self.session).claim_stage(item.subject, STATES[item.kind], worker, lease_sec)

    def _begin_import(self, job_id: str) -> str:
        """Return the job to import for this one's message: that of the owner whose turn is longest ago.

        Messages come in the order of submission, and name one job each. A job that came back is imported for
        its own message alone: another may be all that it waits for.
        """
        free = LeaseRow.kind == WorkKind.IMPORT, LeaseRow.until.is_(None), LeaseRow.sent_at.is_not(None)
        begun = Job.id == job_id, Job.state == JobState.IMPORTING, LeaseRow.subject == Job.id
        came_back = select(Job.id).where(*begun, *free)
        last = select(Job.owner, func.coalesce(func.max(Job.started_at), 0.0).label("at"))
        turn = last.group_by(Job.owner).subquery()
        queued = select(Job.id).join(turn, turn.c.owner == Job.owner).where(Job.state == JobState.QUEUED)
        order = turn.c.at, Job.priority.desc(), Job.created_at, Job.id
        first = queued.order_by(*order).limit(1)
        while self.session.scalar(came_back) is None and (chosen := self.session.scalar(first)) is not None:
            if Jobs(self.session).move(chosen, [JobState.QUEUED], JobState.IMPORTING):
                return chosen
        return job_id

    def put_off(self, hold: LeaseToken, error: MallornError) -> bool:
        """The same as `give_back`, for what will not be there in a moment: it is sent like a lost message."""
        return self.give_back(hold, error, later=True)

    def give_back(self, hold: LeaseToken, error: MallornError, *, later: bool = False) -> bool:
        """Let another take unfinished work, with a word to its job about what is waited for."""
        job_id, words = self._job_of(hold), error.reason
        if hold.item.kind is WorkKind.ROUND:
            given_back = self._close(hold, RoundState.QUEUED, words)
        else:
            self.lock_job(job_id)
            given_back = Leases(self.session).give_back(hold, later)
        if given_back and words:
            Jobs(self.session).say(job_id, words)
        return given_back

    def expire(self, job_id: str | None) -> Sequence[Loss]:
        """Take work of a job from holders that went silent, and tell it."""
        lost = Leases(self.session).expire(job_id)
        for loss in lost:
            self._tell(loss, None)
        return lost

    def lose(self, hold: LeaseToken, error: MallornError, most: int = MAX_LOSSES) -> Loss | None:
        """Count a loss of work that broke off now; it is given up when it has lost `most` holders."""
        self.lock_job(self._job_of(hold))
        loss = Leases(self.session).lose(hold, most)
        if loss is not None:
            self._tell(loss, error)
        return loss

    def die(self, hold: LeaseToken, error: MallornError) -> None:
        """Count a kill from outside, which cut the work short: it is tried far more often."""
        self.lock_job(self._job_of(hold))
        loss = Leases(self.session).die(hold)
        if loss is not None:
            self._tell(loss, error, MAX_DEATHS)

    def leave_to_another_host(self, hold: LeaseToken, error: MallornError) -> None:
        """The host is at fault, which is no loss of the work's.

        A round that three hosts could not do, or three times all workers that there are, pauses its job until
        one is mended.
        """
        if hold.item.kind is not WorkKind.ROUND:
            self.give_back(hold, error)
            return
        row = Leases(self.session).get(hold.item)
        left_by, workers = [*(row.left_by or ()), row.holder or ""], Workers(self.session)
        tried_all = len(left_by) >= MAX_LOSSES and not workers.able() - set(left_by)
        job_id = row.job_id or ""
        self.lock_job(job_id)
        if tried_all or len(workers.hosts(left_by)) >= MAX_LOSSES:
            if self._close(hold, RoundState.CANCELLED, error.message):
                pause_job(self.session, job_id, error)
        elif Leases(self.session).leave(hold, left_by):
            self._tell(Loss(hold, job_id, given_up=False), error)
            Jobs(self.session).say(job_id, error.reason)

    def give_up(self, hold: LeaseToken, error: MallornError) -> None:
        """Try it no more: a round is one of many, a stage is all that there is of its job."""
        if hold.item.kind is WorkKind.ROUND:
            self.lose(hold, error, most=1)
        else:
            self.fail(hold, error)

    def fail(self, hold: LeaseToken, error: MallornError) -> None:
        """End the job: nothing of it can be done as it was asked for."""
        job_id = self._job_of(hold)
        if hold.item.kind is not WorkKind.ROUND:
            fail_job(self.session, job_id, STATES[hold.item.kind], error, hold)
        elif self._close(hold, RoundState.CANCELLED, error.message):
            fail_job(self.session, job_id, JobState.TUNING, error)

    def _close(self, hold: LeaseToken, state: RoundState, error: str) -> bool:
        return Rounds(self.session).close(int(hold.item.subject), hold.token, state, error=error)

    def _job_of(self, hold: LeaseToken) -> str:
        return Leases(self.session).get(hold.item).job_id or ""

    def _tell(self, loss: Loss, error: MallornError | None, most: int = MAX_LOSSES) -> None:
        """`error` None: the holder went silent."""
        if loss.hold.item.kind is WorkKind.ROUND:
            self._lost_round(loss, SILENT if error is None else error.message[-ERROR_CHARS:])
        elif loss.hold.item.kind in STATES:
            self._lost_stage(loss, STATES[loss.hold.item.kind], error, most)

    def _lost_round(self, loss: Loss, error: str) -> None:
        rounds, round_id = Rounds(self.session), int(loss.hold.item.subject)
        rounds.move(round_id, RoundState.POISON if loss.given_up else RoundState.QUEUED, error=error)
        event = RoundPoisonedEvent if loss.given_up else RoundReturnedEvent
        told = event(round=rounds.get(round_id).index, attempt=loss.hold.attempt, error=error)
        Events(self.session).append(loss.job_id, told)

    def _lost_stage(self, loss: Loss, state: JobState, error: MallornError | None, most: int) -> None:
        job_id = loss.job_id
        if loss.given_up:
            if error is None:
                reason = f"{SILENT} {MAX_DEATHS} times"
                failed = FailedEvent(why=reason)
            else:
                reason = _broke_off(state, f"{most} times", error)
                failed = failure(error)
            Jobs(self.session).move(job_id, [state], JobState.FAILED, reason)
            Events(self.session).append(job_id, failed)
            return
        if error is not None:
            Jobs(self.session).say(job_id, _broke_off(state, "and is tried again", error))
        returned = StageReturnedEvent(state=state, error=SILENT if error is None else error.message)
        Events(self.session).append(job_id, returned)


def _broke_off(state: JobState, how: str, error: MallornError) -> str:
    return f"{state} broke off {how}: {error.headline}\n{error.hint}".strip()
