"""Jobs: create them, find them, move them between states, and see which wait for a device."""

import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, case, delete, func, literal, or_, select, true, tuple_, update

from mallorn.core.errors import Conflict, InvalidRequest
from mallorn.core.job_options import KeptOptions
from mallorn.core.labels import MOST_LABELS
from mallorn.core.states import PAUSED_BY_OWNER, SEARCH, WRITE, ZERO_SHOT, JobState, Waiting, WorkKind
from mallorn.core.values.finish_report import FinishReport
from mallorn.core.values.job import JobStep
from mallorn.core.values.machine import Machine
from mallorn.db.database_clock import now
from mallorn.db.repositories.base import UNEXPLAINED, Page, Repository, is_owned_by, require_row
from mallorn.db.repositories.devices import has_machine_key, machine_key_of
from mallorn.db.repositories.job_progress import count_by_outcome
from mallorn.db.repositories.learning_curves import LearningCurves
from mallorn.db.repositories.leases import Leases, LeaseToken, WorkItem, is_still_held
from mallorn.db.tables import Context, Device, Event, Job, JobLabel, TargetRow

ACTIVE = (JobState.QUEUED, JobState.IMPORTING, JobState.TUNING, JobState.FINISHING)
LATEST: Final = 8  # limit of `imported_before`
NEWEST: Final = 40  # limit of `reports`
MOST_NAMED = 5  # jobs that the message about an ambiguous id names
#: The kind of work, done by one worker, that a job in this state waits for.
STAGES: Final = {
    JobState.QUEUED: WorkKind.IMPORT,
    JobState.IMPORTING: WorkKind.IMPORT,
    JobState.FINISHING: WorkKind.FINISH,
}
#: The state of a job while this work is being done.
STATES: Final = {WorkKind.IMPORT: JobState.IMPORTING, WorkKind.FINISH: JobState.FINISHING}
# Resets a job's place in the fair share of its target, after a change of state.
NO_TURN: Final = {"share_pass": None, "owner_pass": None, "planned_at": None}


@dataclass(frozen=True, slots=True)
class NewJob:
    """Fields of a new job. An equal `request_hash` marks a repeat of the same request."""

    owner: str
    name: str
    model_id: str
    target_id: int
    trials: int | None  # None: as many as `minutes` allow; without both, as many as are worthwhile
    minutes: float | None
    seed: int
    options: dict[str, object]
    priority: int = 0
    idempotency_key: str | None = None
    request_hash: str | None = None


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Conditions of a list of jobs; a job must meet all of them."""

    states: Collection[JobState] = ()  # empty: any
    archived: bool = False
    name: str = ""  # part of the name, or beginning of the id
    labels: Collection[tuple[str, str | None]] = ()  # all of them; None: with any value
    model: str = ""  # id of the model, or its beginning
    created_after: float | None = None
    created_before: float | None = None
    #: Of private jobs, only those of this owner match names, labels and models, which others must not learn.
    viewer: str | None = None

    def conditions(self) -> Iterator[ColumnElement[bool]]:
        yield Job.archived_at.is_not(None) if self.archived else Job.archived_at.is_(None)
        if self.states:
            yield Job.state.in_(self.states)
        if self.name:
            has_name = Job.name.icontains(self.name, autoescape=True)
            yield or_(has_name, Job.id.startswith(self.name, autoescape=True))
        for key, value in self.labels:
            has_value = true() if value is None else JobLabel.value == value
            yield Job.id.in_(select(JobLabel.job_id).where(JobLabel.key == key, has_value))
        if self.model:
            yield Job.model_id.between(self.model, f"{self.model}g")  # ids have hexadecimal digits
        if self.viewer is not None and (self.name or self.labels or self.model):
            yield or_(~Job.private, Job.owner == self.viewer)
        if self.created_after is not None:
            yield Job.created_at >= self.created_after
        if self.created_before is not None:
            yield Job.created_at < self.created_before


class Jobs(Repository):
    """Jobs of all owners, with the leases of their stages."""

    def create(self, new: NewJob) -> tuple[Job, bool]:
        """Create a job; return it, and whether it is new.

        A repeated request with the same idempotency key returns the first job. Raises
        Conflict if the key was used for another request.
        """
        options = KeptOptions.model_validate(new.options)
        columns = {"private": options.private, "dataset": options.dataset}
        values = {"id": secrets.token_hex(8), "state": JobState.QUEUED, **columns, **asdict(new)}
        insert = self.insert(Job).values(values)
        insert = insert.on_conflict_do_nothing(index_elements=["owner", "idempotency_key"])
        job_id = self.session.scalar(insert.returning(Job.id))
        if job_id is not None:
            self._update_leases(job_id, JobState.QUEUED)
            return self.get(job_id, new.owner), True
        same_key = select(Job).where(Job.owner == new.owner, Job.idempotency_key == new.idempotency_key)
        job = self.session.scalars(same_key).one()
        if job.request_hash != new.request_hash:
            raise Conflict(f"another request used this Idempotency-Key, for job {job.id}")
        return job, False

    def claim_stage(self, job_id: str, state: JobState, worker: str, lease_sec: float) -> LeaseToken | None:
        """Lease a job's stage; None if the job is not in `state` or the stage is leased."""
        self.lock_jobs([job_id])
        if self.session.scalar(select(Job.id).where(Job.id == job_id, Job.state == state)) is None:
            return None
        return Leases(self.session).claim(WorkItem(STAGES[state], job_id), worker, lease_sec)

    def _update_leases(self, job_id: str, state: JobState) -> None:
        leases = Leases(self.session)
        leases.close_work(STATES, [job_id])
        if state in STAGES:
            leases.add_or_reopen_work(WorkItem(STAGES[state], job_id), job_id)

    def get(self, job_id: str, owner: str | None) -> Job:
        """Return a job. Raises NotFound if there is none, or if it is deleted or another
        owner's; with `owner` None, all jobs are found."""
        # Workers must still find a job that was deleted during their work; owners must not.
        is_visible = true() if owner is None else Job.deleted_at.is_(None)
        query = select(Job).where(Job.id == job_id, is_owned_by(owner), is_visible)
        return require_row(self.session.scalars(query).one_or_none(), f"job {job_id}", "mallorn jobs")

    def check_owner_had_job(self, job_id: str, owner: str | None) -> None:
        """Raise NotFound unless the owner has or had this job, even if it is deleted."""
        query = select(Job.id).where(Job.id == job_id, is_owned_by(owner))
        require_row(self.session.scalar(query), f"job {job_id}", "mallorn jobs")

    def list_earlier_imports(self, job: Job) -> Sequence[Job]:
        """Return an owner's newest other jobs with this model and target, once imported."""
        same_model = Job.owner == job.owner, Job.model_id == job.model_id, Job.target_id == job.target_id
        was_imported = Job.id != job.id, Job.graph.is_not(None), Job.deleted_at.is_(None)
        query = select(Job).where(*same_model, *was_imported).order_by(Job.created_at.desc())
        return self.session.scalars(query.limit(LATEST)).all()

    def read_event_marks(self, job_ids: Sequence[str]) -> dict[str, tuple[int, str]]:
        """Return, by job id, each job's number of events and its state, without deleted jobs."""
        conditions = self.is_among(Job.id, job_ids), Job.deleted_at.is_(None)
        rows = self.session.execute(select(Job.id, Job.event_count, Job.state).where(*conditions))
        return {job_id: (count, state) for job_id, count, state in rows}

    def reports(self, context_id: int | None) -> Sequence[tuple[FinishReport, float]]:
        """Return finish reports and durations in seconds of a context's newest done jobs.

        Private jobs, and those that do not write to the dataset, are left out.
        """
        is_public = ~Job.private, Job.dataset == WRITE
        is_done = Job.context_id == context_id, Job.state == JobState.DONE, *is_public
        query = select(Job.report, Job.finished_at - Job.started_at).where(*is_done)
        rows = self.session.execute(query.order_by(Job.finished_at.desc()).limit(NEWEST))
        return [(report, took_sec) for report, took_sec in rows if report and took_sec]

    def find(self, text: str, owner: str | None) -> Job:
        """Return the only job whose id starts with `text`; raises NotFound or Conflict."""
        has_prefix = Job.id.startswith(text, autoescape=True)
        query = select(Job).where(has_prefix, is_owned_by(owner), Job.deleted_at.is_(None))
        query = query.order_by(Job.created_at.desc(), Job.id.desc())
        jobs = self.session.scalars(query.limit(MOST_NAMED + 1)).all()
        if len(jobs) < 2 or text in (job.id for job in jobs):
            return self.get(jobs[0].id if len(jobs) == 1 else text, owner)
        names = ", ".join(f"{job.id} ({job.name})" for job in jobs[:MOST_NAMED])
        suffix = " and more" if len(jobs) > MOST_NAMED else ""
        raise Conflict(f"several ids begin with {text}: {names}{suffix}", hint=f"mallorn show {jobs[0].id}")

    def list(
        self,
        owner: str | None,
        job_filter: JobFilter | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page[Job]:
        """Return a page of an owner's jobs, or of all if `owner` is None, newest first."""
        query = select(Job).where(is_owned_by(owner), Job.deleted_at.is_(None))
        query = query.where(*(job_filter or JobFilter()).conditions())
        query = query.order_by(Job.created_at.desc(), Job.id.desc())
        if cursor is not None:
            position = Page.decode_cursor(cursor, float, str)
            query = query.where(tuple_(Job.created_at, Job.id) < tuple_(*position))
        jobs = self.session.scalars(query.limit(limit + 1)).all()
        return Page.of(jobs, limit, lambda job: (job.created_at, job.id))

    def move_to_state(
        self,
        job_id: str,
        from_states: Collection[JobState],
        to_state: JobState,
        ended_because: str = "",
        hint: str = "",
        *,
        step: JobStep | None = None,
        hold: LeaseToken | None = None,
    ) -> bool:
        """Change a job's state, if it is in `from_states` and `hold`, if given, is valid.

        `step` is what is done in the new state. Also end the leases of the job's stages, and
        open the stage of the new state for workers. Return whether the state changed.
        """
        self.lock_jobs([job_id])
        started_at = func.coalesce(Job.started_at, now())
        values = {
            "state": to_state,
            **(UNEXPLAINED | {"ended_because": ended_because, "hint": hint, "step": step}),
            "finished_at": now() if to_state.is_final else None,
            "resume_state": Job.state if to_state is JobState.FAILED else None,
            "started_at": Job.started_at if to_state is JobState.QUEUED else started_at,
            **NO_TURN,
        }
        conditions = Job.id == job_id, Job.state.in_(from_states)
        fence = () if hold is None else (is_still_held(hold),)
        has_moved = self.execute_and_count(update(Job).where(*conditions, *fence).values(values)) == 1
        if has_moved:
            self._update_leases(job_id, to_state)
        return has_moved

    def pause(self, job_id: str, owner: str | None, waiting: Waiting = PAUSED_BY_OWNER) -> Job:
        """Pause a job. Raises NotFound if there is no such job, Conflict if it is not active."""
        changes = {"resume_state": Job.state, **asdict(waiting)}
        return self._change_state(job_id, owner, ACTIVE, JobState.PAUSED, **changes)

    def cancel(self, job_id: str, owner: str | None, because: str = "cancelled by its owner") -> Job:
        """Cancel a job. Raises NotFound if there is no such job, Conflict if it has ended."""
        states = (*ACTIVE, JobState.PAUSED)
        return self._change_state(job_id, owner, states, JobState.CANCELLED, ended_because=because)

    def resume(self, job_id: str, owner: str | None, more_trials: int = 0, *, auto: bool = False) -> Job:
        """Resume a paused job, or continue a job that has reached its finish stage.

        With `more_trials` or `auto` (no limits), a job that reached its finish stage tunes
        again. Without them, a finish that failed or left something out is repeated.
        A job without a trial limit gets one by `more_trials`, unless it is paused and has
        a time limit. An archived job returns to the list. Raises NotFound if there is no
        such job, Conflict if its state allows none of these.
        """
        job = self.get(job_id, owner)
        state: JobState = JobState.PAUSED
        next_state: Any = Job.resume_state
        if (more_trials > 0 or (auto and not job.has_auto_budget)) and has_reached_finish(job):
            state, next_state = JobState(job.state), JobState.TUNING
        elif has_incomplete_finish(job):
            state, next_state = JobState(job.state), JobState.FINISHING
        changes: dict[str, object] = {"finished_at": None, "archived_at": None}
        if auto:
            changes |= {"trials": None, "minutes": None}
        elif more_trials:
            adds_to_spent = or_(Job.state != JobState.PAUSED, Job.minutes.is_(None))
            trials = sum(count_by_outcome(self.session, [job.id])[job.id].values())
            spent_trials = case((adds_to_spent, trials))
            changes["trials"] = func.coalesce(Job.trials, spent_trials) + more_trials
        return self._change_state(job_id, owner, [state], next_state, resume_state=None, **changes)

    def _change_state(
        self,
        job_id: str,
        owner: str | None,
        states: Collection[JobState],
        state: Any,
        **changes: Any,
    ) -> Job:
        job = self.get(job_id, owner)
        changes = UNEXPLAINED | changes | {"state": state, **NO_TURN}
        if state is JobState.CANCELLED:
            changes["finished_at"] = now()
        conditions = Job.id == job_id, Job.state.in_(states), Job.deleted_at.is_(None)
        if not self.execute_and_count(update(Job).where(*conditions).values(changes)):
            raise Conflict(f"job {job_id} is {job.state}", hint=f"mallorn show {job_id}")
        job = self.get(job_id, owner)
        self._update_leases(job_id, JobState(job.state))
        return job

    def set_waiting(self, job_id: str, waiting: Waiting) -> None:
        """Set why an active job waits; a paused job keeps why it was paused."""
        waits_otherwise = Job.state.in_(ACTIVE), Job.waiting_because != waiting.waiting_because
        self.execute_and_count(update(Job).where(Job.id == job_id, *waits_otherwise).values(asdict(waiting)))

    def set_step(self, job_id: str, step: JobStep | None) -> None:
        """Set what is done for an active job, which waits no more; None: what its state says."""
        # A round sets the same step with each of its commits: the row is not written again.
        is_other = or_(Job.waiting_because != "", Job.step.is_distinct_from(literal(step, Job.step.type)))
        conditions = Job.id == job_id, Job.state.in_(ACTIVE), is_other
        self.execute_and_count(update(Job).where(*conditions).values(UNEXPLAINED | {"step": step}))

    def store_report_columns(self, job_id: str, **report: Any) -> None:
        """Store results of import, planning or finish; arguments name columns of Job."""
        self.execute_and_count(update(Job).where(Job.id == job_id).values(report))

    def bind_context(self, job_id: str, context_id: int) -> int:
        """Bind a job to a measuring context unless it has one; return its context's id."""
        unbound = Job.id == job_id, Job.context_id.is_(None)
        if self.execute_and_count(update(Job).where(*unbound).values(context_id=context_id)):
            LearningCurves(self.session).drop_of_job(job_id)
        return self.session.execute(select(Job.context_id).where(Job.id == job_id)).scalar_one() or context_id

    def retarget(self, job_id: str, target_id: int) -> None:
        """Change an importing job's target to the one that names its virtual device."""
        importing = Job.id == job_id, Job.state == JobState.IMPORTING
        self.execute_and_count(update(Job).where(*importing).values(target_id=target_id))

    def bind_machine(self, job_id: str, machine: Machine) -> None:
        """Bind a job without a machine to the one for which its candidates are proposed."""
        unbound = Job.id == job_id, Job.machine.is_(None)
        self.execute_and_count(update(Job).where(*unbound).values(machine=machine))


class JobLabels(Repository):
    def by_job(self, job_ids: Collection[str]) -> dict[str, dict[str, str]]:
        """Return the labels of each of these jobs, sorted by key."""
        labels: dict[str, dict[str, str]] = {job_id: {} for job_id in job_ids}
        query = select(JobLabel).where(self.is_among(JobLabel.job_id, job_ids)).order_by(JobLabel.key)
        for row in self.session.scalars(query):
            labels[row.job_id][row.key] = row.value
        return labels

    def change(self, job_id: str, changes: Mapping[str, str | None]) -> None:
        """Set labels of a job, and remove those whose new value is None. Raises
        InvalidRequest if the job would have more than MOST_LABELS."""
        Jobs(self.session).lock_jobs([job_id])
        in_changes = JobLabel.job_id == job_id, JobLabel.key.in_(changes)
        self.execute_and_count(delete(JobLabel).where(*in_changes))
        rows = [(key, value) for key, value in changes.items() if value is not None]
        self.session.add_all(JobLabel(job_id=job_id, key=key, value=value) for key, value in rows)
        self.session.flush()
        if (count := len(self.by_job([job_id])[job_id])) > MOST_LABELS:
            message = f"a job may have {MOST_LABELS} labels, and this would make {count}"
            raise InvalidRequest(message, hint=f"mallorn jobs label {job_id} --remove KEY")


def has_reached_finish(job: Job) -> bool:
    """Return whether a job is done, or failed or was paused in its finish stage."""
    has_stopped = job.state in (JobState.FAILED, JobState.PAUSED)
    return job.state == JobState.DONE or (has_stopped and job.resume_state == JobState.FINISHING)


def has_incomplete_finish(job: Job) -> bool:
    """Return whether a repeated finish stage may do what failed or was left out before."""
    is_incomplete = job.report is not None and bool(job.report.skipped_steps)
    return has_reached_finish(job) and (job.state == JobState.FAILED or is_incomplete)


# Zero-shot jobs only return stored schedules, so they need no device.
_RUNS: Final = func.coalesce(Job.options["mode"].as_string(), SEARCH) != ZERO_SHOT


class JobsWaitingForDevice(Repository):
    """Reads which devices jobs need, and for how long they have had none."""

    def targets(self) -> Sequence[str]:
        """Return the targets, as canonical text, of active jobs that run on devices."""
        query = select(TargetRow.text).join(Job, Job.target_id == TargetRow.id)
        query = query.where(Job.state.in_(ACTIVE), _RUNS)
        return self.session.scalars(query.distinct().order_by(TargetRow.text)).all()

    def one_job_per_target(self, target_ids: Collection[int]) -> Sequence[str]:
        """Return the id of one active job for each of these targets that has any."""
        active = Job.target_id.in_(target_ids), Job.state.in_(ACTIVE)
        return self.session.scalars(select(func.min(Job.id)).where(*active).group_by(Job.target_id)).all()

    def set_waiting(self, target: str, waiting: Waiting) -> None:
        """Show in a target's active jobs why they wait for a device."""
        target_id = select(TargetRow.id).where(TargetRow.text == target).scalar_subquery()
        waits_otherwise = Job.state.in_(ACTIVE), _RUNS, Job.waiting_because != waiting.waiting_because
        self.execute_and_count(
            update(Job).where(Job.target_id == target_id, *waits_otherwise).values(asdict(waiting))
        )

    def waiting_since(self, job: Job) -> float:
        """Return the later of the job's last event and a suitable device's last contact."""
        events = select(func.max(Event.created_at)).where(Event.job_id == job.id)
        last_seen = select(func.max(Device.last_seen)).where(Device.target_id == job.target_id)
        if job.context_id is not None:
            last_seen = last_seen.where(
                has_machine_key(machine_key_of(self.session.get_one(Context, job.context_id)))
            )
        times = self.session.scalar(events), self.session.scalar(last_seen)
        return max(job.created_at, *(time for time in times if time is not None), 0.0)
