"""Claim, return, lose or fail leased work, and update its round and job accordingly."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, String, and_, case, cast, func, or_, select

from mallorn.core.errors import LeaseLost, MallornError
from mallorn.core.job_options import DETACHED
from mallorn.core.states import ZERO_SHOT, JobState, RoundState, Waiting, WorkKind
from mallorn.core.values.event import FailedEvent, RoundPoisonedEvent, RoundReturnedEvent, StageReturnedEvent
from mallorn.db.database_clock import now
from mallorn.db.repositories.base import ERROR_CHARS, Repository, seconds_from_now
from mallorn.db.repositories.devices import MachineKey, is_context_of_any
from mallorn.db.repositories.job_events_and_warnings import Events
from mallorn.db.repositories.job_transitions import fail_job, failure, pause_job
from mallorn.db.repositories.jobs import STATES, Jobs
from mallorn.db.repositories.leases import MAX_DEATHS, MAX_LOSSES, Leases, LeaseToken, Loss, WorkItem
from mallorn.db.repositories.measuring_contexts import Contexts
from mallorn.db.repositories.rounds import Rounds
from mallorn.db.repositories.targets import Targets, is_virtual
from mallorn.db.repositories.workers import Workers
from mallorn.db.tables import Context, Job, LeaseRow, TargetRow

LEFT_SEC: Final = 10.0
SILENT: Final = "the worker died or stopped responding"


@dataclass(frozen=True, slots=True)
class WorkerAbility:
    """The work that a worker can do: kinds of work, its builders, toolchains and devices."""

    kinds: frozenset[WorkKind]
    builders: frozenset[str]
    other_builders: frozenset[str] = frozenset()  # of other live workers, which go on with their jobs
    lacking_toolchains: frozenset[str] = frozenset()
    devices: frozenset[MachineKey] = frozenset()

    def for_kinds(self, *kinds: WorkKind) -> "WorkerAbility":
        return replace(self, kinds=self.kinds.intersection(kinds))


class WorkItems(Repository):
    """Claims and ends jobs' rounds and stages. Calls with an ended lease do nothing."""

    def claim(self, item: WorkItem, worker: str, lease_sec: float) -> LeaseToken | None:
        """Lease a round or stage; None if it is held or its job's state does not allow it."""
        if item.kind is WorkKind.ROUND:
            return Rounds(self.session).claim(int(item.subject), worker, lease_sec)
        if item.kind is WorkKind.IMPORT:
            Jobs(self.session).move_to_state(item.subject, [JobState.QUEUED], JobState.IMPORTING)
        return Jobs(self.session).claim_stage(item.subject, STATES[item.kind], worker, lease_sec)

    def claim_best(self, ability: WorkerAbility, worker: str, lease_sec: float) -> LeaseToken | None:
        """Lease the best waiting work that a worker can do; None if there is none.

        Skips rows locked by other transactions, so that workers never wait for each other.
        """
        if WorkKind.IMPORT in ability.kinds and (job_id := self._start_next_import(ability)) is not None:
            return Jobs(self.session).claim_stage(job_id, JobState.IMPORTING, worker, lease_sec)
        if ability.kinds <= {WorkKind.IMPORT}:
            return None
        query = self._waiting_work(ability, worker).limit(1)
        row = self.session.execute(
            query.with_for_update(of=LeaseRow, key_share=True, skip_locked=True)
        ).one_or_none()
        if row is None:
            return None
        item = WorkItem(WorkKind(row.kind), row.subject)
        if item.kind is WorkKind.ROUND and not Rounds(self.session).begin(int(item.subject), worker):
            return None
        return Leases(self.session).claim(item, worker, lease_sec)

    def has_waiting(self, ability: WorkerAbility, longer_than_sec: float) -> bool:
        """Return whether work that a worker can do has waited for longer than this."""
        since = seconds_from_now(-longer_than_sec)
        queries: list[Select[*tuple[Any, ...]]] = []
        if not ability.kinds <= {WorkKind.IMPORT}:
            queries.append(self._waiting_work(ability, "").where(LeaseRow.due_at < since))
        if WorkKind.IMPORT in ability.kinds:
            queries += [
                _importable(ability, JobState.QUEUED).where(Job.created_at < since),
                _interrupted_imports(ability).where(LeaseRow.due_at < since),
            ]
        return any(self.session.execute(query.limit(1)).first() is not None for query in queries)

    def _waiting_work(self, ability: WorkerAbility, worker: str) -> Select[str, str]:
        """Return the query for rounds and finishes that a worker can do, the best first.

        The owner who has had the least comes first, and of an owner the job that has; of a
        job the work that waits longest. Work that this worker's host failed at comes last.
        """
        is_round = LeaseRow.kind == WorkKind.ROUND
        kinds = ability.kinds & {WorkKind.ROUND, WorkKind.FINISH}
        state = case((is_round, JobState.TUNING), else_=JobState.FINISHING)
        is_due = LeaseRow.until.is_(None), LeaseRow.due_at <= now(), LeaseRow.kind.in_(kinds)
        # A finish that nobody with a device takes goes to others, who say what is missing.
        is_left = and_(~is_round, LeaseRow.due_at < seconds_from_now(-LEFT_SEC))
        needs_no_device = or_(
            Job.context_id.is_(None), is_virtual(), Job.options["mode"].as_string() == ZERO_SHOT
        )
        was_left = cast(LeaseRow.left_by, String).contains(f'"{worker}"', autoescape=True)
        order = (
            case((was_left, 1), else_=0),
            *(func.coalesce(column, 0.0) for column in (Job.owner_pass, Job.share_pass)),
            *(LeaseRow.due_at, func.length(LeaseRow.subject), LeaseRow.subject),
        )
        return (
            select(LeaseRow.kind, LeaseRow.subject)
            .join(Job, Job.id == LeaseRow.job_id)
            .join(TargetRow, TargetRow.id == Job.target_id)
            .join(Context, Context.id == Job.context_id, isouter=True)
            .where(*is_due, Job.state == state, _is_built_by(ability))
            .where(Job.options["measurer"].as_string() != DETACHED)
            .where(
                TargetRow.toolchain.not_in(ability.lacking_toolchains),
                or_(needs_no_device, is_context_of_any(ability.devices), is_left),
            )
            .order_by(*order)
        )

    def _start_next_import(self, ability: WorkerAbility) -> str | None:
        """Choose the job that is imported next, move it to IMPORTING and return its id;
        None if none waits. An import that was interrupted comes first. Then owners take
        turns, so that an owner with many jobs does not delay others: the one whose last
        job started longest ago."""
        interrupted = _interrupted_imports(ability).where(LeaseRow.due_at <= now())
        job_id = self.session.scalar(interrupted.order_by(LeaseRow.due_at).limit(1))
        while job_id is None:
            # Without statistics on new jobs, PostgreSQL would aggregate again for each.
            turns = select(Job.owner, func.coalesce(func.max(Job.started_at), 0.0).label("at"))
            turn = turns.group_by(Job.owner).cte("turn").prefix_with("MATERIALIZED", dialect="postgresql")
            order = turn.c.at, Job.priority.desc(), Job.created_at, Job.id
            queued = (
                _importable(ability, JobState.QUEUED).join(turn, turn.c.owner == Job.owner).order_by(*order)
            )
            queued_id = self.session.scalar(queued.limit(1))
            if queued_id is None:
                return None
            if Jobs(self.session).move_to_state(queued_id, [JobState.QUEUED], JobState.IMPORTING):
                job_id = queued_id
            # Else another transaction has moved this job meanwhile: look for the next one.
        return job_id

    def return_work(self, hold: LeaseToken, error: MallornError, *, delay_sec: float = 0.0) -> bool:
        """Free unfinished work after `delay_sec`; show in its job what it waits for."""
        job_id = self._job_of(hold)
        # Another worker goes on at once with the work of one that is stopped.
        message = "" if isinstance(error, LeaseLost) else error.message
        if hold.item.kind is WorkKind.ROUND:
            is_returned = Rounds(self.session).give_back(hold, message, delay_sec)
        else:
            self.lock_jobs([job_id])
            is_returned = Leases(self.session).return_work(hold, delay_sec)
        if is_returned and message:
            Jobs(self.session).set_waiting(job_id, Waiting(message, error.hint))
        return is_returned

    def end_expired_leases(self, job_id: str | None) -> Sequence[Loss]:
        """End a job's expired leases, and record the losses in the job's log."""
        if job_id is not None:
            self.lock_jobs([job_id])
        losses = Leases(self.session).free_expired_work(job_id)
        for loss in losses:
            self._record_loss(loss, None)
        return losses

    def record_interruption(
        self, hold: LeaseToken, error: MallornError, limit: int = MAX_LOSSES, is_death: bool = False
    ) -> Loss | None:
        """Record that work was interrupted, or that its holder was killed; give the work up
        after `limit` interruptions or deaths."""
        self.lock_jobs([self._job_of(hold)])
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
        left_by, job_id = [*(row.left_by or ()), row.holder or ""], row.job_id or ""
        has_tried_all = len(left_by) >= MAX_LOSSES and self._workers_for(job_id) <= {*left_by}
        self.lock_jobs([job_id])
        if has_tried_all or len(Workers(self.session).hosts(left_by)) >= MAX_LOSSES:
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

    def _workers_for(self, job_id: str) -> set[str]:
        """Return live workers with the toolchain of a job and, if any has it, its builder."""
        job, contexts = Jobs(self.session).get(job_id, None), Contexts(self.session)
        builder = None if job.context_id is None else contexts.get(job.context_id).builder
        toolchain = Targets(self.session).get(job.target_id).toolchain
        builders = {row.id: row.info.builders for row in Workers(self.session).list_tuning(toolchain)}
        return {name for name in builders if builder in builders[name]} or {*builders}

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


def _importable(ability: WorkerAbility, state: JobState) -> Select[str]:
    """Return the query for jobs in a state that a worker may import."""
    jobs = select(Job.id).join(Context, Context.id == Job.context_id, isouter=True)
    return jobs.where(Job.state == state, _is_built_by(ability))


def _interrupted_imports(ability: WorkerAbility) -> Select[str]:
    """Return the query for jobs whose import began, and that no worker imports now."""
    is_free = LeaseRow.subject == Job.id, LeaseRow.kind == WorkKind.IMPORT, LeaseRow.until.is_(None)
    return _importable(ability, JobState.IMPORTING).join(LeaseRow, and_(*is_free))


def _is_built_by(ability: WorkerAbility) -> ColumnElement[bool]:
    """Return the condition that a worker may build for a job: it has the builder of the
    job's measurements, or no other live worker has it."""
    builder = func.coalesce(Context.built_by, Context.tvm_version)
    is_ours = builder.in_(ability.builders), builder.not_in(ability.other_builders)
    return or_(Job.context_id.is_(None), *is_ours)
