"""Claim, return, lose or fail leased work, and update its round and job accordingly."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import func, select

from mallorn.core.errors import LeaseLost, MallornError
from mallorn.core.states import JobState, RoundState, Waiting, WorkKind
from mallorn.core.values.event import FailedEvent, RoundPoisonedEvent, RoundReturnedEvent, StageReturnedEvent
from mallorn.db.repositories.base import ERROR_CHARS, Repository
from mallorn.db.repositories.job_events_and_warnings import Events
from mallorn.db.repositories.job_transitions import fail_job, failure, pause_job
from mallorn.db.repositories.jobs import STATES, Jobs
from mallorn.db.repositories.leases import MAX_DEATHS, MAX_LOSSES, Leases, LeaseToken, Loss, WorkItem
from mallorn.db.repositories.rounds import Rounds
from mallorn.db.repositories.workers import Workers
from mallorn.db.tables import Job, LeaseRow

SILENT: Final = "the worker died or stopped responding"


class WorkItems(Repository):
    """Claims and ends jobs' rounds and stages. Calls with an ended lease do nothing."""

    def claim(self, item: WorkItem, worker: str, lease_sec: float) -> LeaseToken | None:
        """Lease a round or stage; None if it is held or its job's state does not allow it.

        A message about one job's import may lease another job's (`_start_next_import`).
        """
        if item.kind is WorkKind.ROUND:
            return Rounds(self.session).claim(int(item.subject), worker, lease_sec)
        job_id = item.subject
        if item.kind is WorkKind.IMPORT:
            job_id = self._start_next_import(message_job_id=job_id)
        return Jobs(self.session).claim_stage(job_id, STATES[item.kind], worker, lease_sec)

    def _start_next_import(self, message_job_id: str) -> str:
        """Choose the job that an import message starts, move it to IMPORTING, return its
        id.

        Each submitted job sends one message. So that an owner with many jobs does not
        delay others, a message starts the next queued job of the owner whose last job
        started longest ago, whichever job sent it.

        Return the message's own job, without moving it, if no job is queued, or if a worker
        gave that job back during its import: it may never get another message.
        """
        returned_import = select(Job.id).where(
            Job.id == message_job_id,
            Job.state == JobState.IMPORTING,
            LeaseRow.subject == Job.id,
            LeaseRow.kind == WorkKind.IMPORT,
            LeaseRow.until.is_(None),
            LeaseRow.sent_at.is_not(None),
        )
        # Before PostgreSQL has statistics on new jobs, it would aggregate again for each of them.
        query = select(Job.owner, func.coalesce(func.max(Job.started_at), 0.0).label("at"))
        owner_turns = query.group_by(Job.owner).cte("turn").prefix_with("MATERIALIZED", dialect="postgresql")
        next_queued_job = (
            select(Job.id)
            .join(owner_turns, owner_turns.c.owner == Job.owner)
            .where(Job.state == JobState.QUEUED)
            .order_by(owner_turns.c.at, Job.priority.desc(), Job.created_at, Job.id)
            .limit(1)
        )
        while self.session.scalar(returned_import) is None:
            job_id = self.session.scalar(next_queued_job)
            if job_id is None:
                break
            if Jobs(self.session).move_to_state(job_id, [JobState.QUEUED], JobState.IMPORTING):
                return job_id
            # Another transaction has moved this job meanwhile: look for the next one.
        return message_job_id

    def return_work(self, hold: LeaseToken, error: MallornError, *, is_delayed: bool = False) -> bool:
        """Return unfinished work for another worker; show in its job what it waits for. Its
        message is sent again soon or, if `is_delayed`, only later."""
        job_id = self._job_of(hold)
        # Another worker goes on at once with the work of one that is stopped.
        message = "" if isinstance(error, LeaseLost) else error.message
        if hold.item.kind is WorkKind.ROUND:
            is_returned = Rounds(self.session).close(hold, RoundState.QUEUED, error=message)
        else:
            self.lock_job(job_id)
            is_returned = Leases(self.session).return_work(hold, is_delayed)
        if is_returned and message:
            Jobs(self.session).set_waiting(job_id, Waiting(message, error.hint))
        return is_returned

    def end_expired_leases(self, job_id: str | None) -> Sequence[Loss]:
        """End a job's expired leases, and record the losses in the job's log."""
        losses = Leases(self.session).free_expired_work(job_id)
        for loss in losses:
            self._record_loss(loss, None)
        return losses

    def record_interruption(
        self, hold: LeaseToken, error: MallornError, limit: int = MAX_LOSSES, is_death: bool = False
    ) -> Loss | None:
        """Record that work was interrupted, or that its holder was killed; give the work up
        after `limit` interruptions or deaths."""
        self.lock_job(self._job_of(hold))
        loss = Leases(self.session).record_loss(hold, limit, is_death)
        if loss is not None:
            self._record_loss(loss, error, limit)
        return loss

    def leave_to_another_host(self, hold: LeaseToken, error: MallornError) -> None:
        """Return work that this worker's host cannot do, without counting a loss.

        If three hosts could not do a round, or three attempts on all able workers failed,
        pause its job until a user has repaired a host.
        """
        if hold.item.kind is not WorkKind.ROUND:
            self.return_work(hold, error)
            return
        row = Leases(self.session).get(hold.item)
        left_by, workers = [*(row.left_by or ()), row.holder or ""], Workers(self.session)
        has_tried_all = len(left_by) >= MAX_LOSSES and not workers.list_tuning_worker_ids() - set(left_by)
        job_id = row.job_id or ""
        self.lock_job(job_id)
        if has_tried_all or len(workers.hosts(left_by)) >= MAX_LOSSES:
            if Rounds(self.session).close(hold, RoundState.CANCELLED, error=error.message):
                pause_job(self.session, job_id, error)
        elif Leases(self.session).leave_to_other_hosts(hold, left_by):
            self._record_loss(Loss(hold, job_id, is_given_up=False), error)
            Jobs(self.session).set_waiting(job_id, Waiting(error.message, error.hint))

    def give_up(self, hold: LeaseToken, error: MallornError) -> None:
        """Do not retry: mark a round as given up, or fail the job if the work is a stage."""
        if hold.item.kind is WorkKind.ROUND:
            self.record_interruption(hold, error, limit=1)
        else:
            self.fail_job_of_work(hold, error)

    def fail_job_of_work(self, hold: LeaseToken, error: MallornError) -> None:
        """Fail the job of this work, because the job cannot be done as requested."""
        job_id = self._job_of(hold)
        if hold.item.kind is not WorkKind.ROUND:
            fail_job(self.session, job_id, STATES[hold.item.kind], error, hold)
        elif Rounds(self.session).close(hold, RoundState.CANCELLED, error=error.message):
            fail_job(self.session, job_id, JobState.TUNING, error)

    def _job_of(self, hold: LeaseToken) -> str:
        return Leases(self.session).get(hold.item).job_id or ""

    def _record_loss(self, loss: Loss, error: MallornError | None, limit: int = MAX_LOSSES) -> None:
        """Record a loss in the job's log; `error` is None if the lease expired."""
        item, job_id, events = loss.hold.item, loss.job_id, Events(self.session)
        if item.kind is WorkKind.ROUND:
            rounds, round_id = Rounds(self.session), int(item.subject)
            text = SILENT if error is None else error.message[-ERROR_CHARS:]
            state = RoundState.POISON if loss.is_given_up else RoundState.QUEUED
            rounds.move(round_id, state, error=text)
            event_type = RoundPoisonedEvent if loss.is_given_up else RoundReturnedEvent
            index = rounds.get(round_id).index
            events.append(job_id, event_type(round=index, attempt=loss.hold.attempt, error=text))
        elif item.kind in STATES and loss.is_given_up:
            if error is None:
                because, hint = f"{SILENT} {MAX_DEATHS} times", ""
                failed_event = FailedEvent(reason=because)
            else:
                because = _describe_interruption(STATES[item.kind], f"{limit} times", error)
                hint, failed_event = error.hint, failure(error)
            Jobs(self.session).move_to_state(job_id, [STATES[item.kind]], JobState.FAILED, because, hint)
            events.append(job_id, failed_event)
        elif item.kind in STATES:
            stage = STATES[item.kind]
            if error is not None:
                because = _describe_interruption(stage, "and is tried again", error)
                Jobs(self.session).set_waiting(job_id, Waiting(because, error.hint))
            text = SILENT if error is None else error.message
            events.append(job_id, StageReturnedEvent(state=stage, error=text))


def _describe_interruption(state: JobState, consequence: str, error: MallornError) -> str:
    return f"{state} was interrupted {consequence}: {error.headline}"
