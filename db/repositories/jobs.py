"""Jobs: creating, finding, and moving them between states."""

import secrets
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from sqlalchemy import case, func, or_, select, true, tuple_, update

from db.database_clock import now
from db.paging import Page, check_limit, decode_cursor, page
from db.repositories.base import Repository, owned, said
from db.repositories.job_progress import count_by_outcome
from db.repositories.leases import Leases, LeaseToken, WorkItem, held
from db.tables import Job
from mallorn.core.errors import Conflict, NotFound
from mallorn.core.states import PAUSED_BY_OWNER, Cause, JobState, WorkKind
from mallorn.core.values.finish_report import FinishReport
from mallorn.core.values.machine import Machine

ACTIVE = (JobState.QUEUED, JobState.IMPORTING, JobState.TUNING, JobState.FINISHING)
LATEST: Final = 8  # jobs that are asked whether they imported the same
NEWEST: Final = 40  # reports that tell what jobs bring
MOST_NAMED = 5  # of the jobs that an abbreviated id may mean
#: The stages of a job that one worker does alone.
STAGES: Final = {
    JobState.QUEUED: WorkKind.IMPORT,
    JobState.IMPORTING: WorkKind.IMPORT,
    JobState.FINISHING: WorkKind.FINISH,
}
#: In which state a job is worked at.
STATES: Final = {WorkKind.IMPORT: JobState.IMPORTING, WorkKind.FINISH: JobState.FINISHING}
# Whatever state a job comes to, it takes part in the fair share of its target as a newcomer or not at all.
NO_TURN: Final = {"share_pass": None, "owner_pass": None, "planned_at": None}


@dataclass(frozen=True, slots=True)
class NewJob:
    """What a job is created from. Equal `request_hash` marks a repeat of the same request."""

    owner: str
    name: str
    model_id: str
    target_id: int
    trials: int | None  # None: as many as the minutes allow; without minutes, as are worth it
    minutes: float | None
    seed: int
    options: dict[str, object]
    priority: int = 0
    idempotency_key: str | None = None
    request_hash: str | None = None


class Jobs(Repository):
    """Jobs of all owners, with the leases of their stages."""

    def create(self, new: NewJob) -> tuple[Job, bool]:
        """The job and whether it is new: the same idempotency key and request find the first job again.

        Raises Conflict when the key was used for another request.
        """
        private = new.options.get("private") == "on"
        values = {"id": secrets.token_hex(8), "state": JobState.QUEUED, "private": private, **asdict(new)}
        once = (
            self.insert(Job)
            .values(values)
            .on_conflict_do_nothing(index_elements=["owner", "idempotency_key"])
        )
        job_id = self.session.scalar(once.returning(Job.id))
        if job_id is not None:
            self._enter(job_id, JobState.QUEUED)
            return self.get(job_id, new.owner), True
        same_key = select(Job).where(Job.owner == new.owner, Job.idempotency_key == new.idempotency_key)
        job = self.session.scalars(same_key).one()
        if job.request_hash != new.request_hash:
            raise Conflict(f"this Idempotency-Key belongs to job {job.id}, which asks for something else")
        return job, False

    def claim_stage(self, job_id: str, state: JobState, worker: str, lease_sec: float) -> LeaseToken | None:
        """Take the stage of a job in this state; None if it is not to be had."""
        self.lock_job(job_id)
        if self.session.scalar(select(Job.id).where(Job.id == job_id, Job.state == state)) is None:
            return None
        return Leases(self.session).claim(WorkItem(STAGES[state], job_id), worker, lease_sec)

    def _enter(self, job_id: str, state: JobState) -> None:
        """Whoever held a stage of the job holds it no more; that of the new state waits for a worker."""
        leases = Leases(self.session)
        leases.rest(STATES, [job_id])
        if state in STAGES:
            leases.open(WorkItem(STAGES[state], job_id), job_id)

    def get(self, job_id: str, owner: str | None) -> Job:
        """Raises NotFound, also for another owner's job, and for one that is deleted where an owner asks."""
        # Work that was under way for a job that is deleted since still has to find it; people do not.
        there = true() if owner is None else Job.deleted_at.is_(None)
        job = self.session.scalars(select(Job).where(Job.id == job_id, owned(owner), there)).one_or_none()
        if job is None:
            raise NotFound(f"there is no job {job_id}", hint="mallorn jobs")
        return job

    def check_measured(self, job_id: str, owner: str | None) -> None:
        """Raise NotFound unless the owner has, or had, such a job: what a deleted one measured is there."""
        if self.session.scalar(select(Job.id).where(Job.id == job_id, owned(owner))) is None:
            raise NotFound(f"there is no job {job_id}", hint="mallorn jobs")

    def imported_before(self, job: Job) -> Sequence[Job]:
        """The owner's latest jobs for the same model and target that were imported."""
        same = Job.owner == job.owner, Job.model_id == job.model_id, Job.target_id == job.target_id
        others = Job.id != job.id, Job.graph.is_not(None), Job.deleted_at.is_(None)
        query = select(Job).where(*same, *others).order_by(Job.created_at.desc())
        return self.session.scalars(query.limit(LATEST)).all()

    def marks(self, job_ids: Sequence[str]) -> dict[str, tuple[int, str]]:
        """By job how many events it has, and its state; what is deleted is left out."""
        which = self.among(Job.id, job_ids), Job.deleted_at.is_(None)
        rows = self.session.execute(select(Job.id, Job.event_count, Job.state).where(*which))
        return {job_id: (count, state) for job_id, count, state in rows}

    def reports(self, context_id: int | None) -> Sequence[tuple[FinishReport, float]]:
        """Those of the newest public jobs that ended in a measuring context, with their seconds."""
        ended = Job.context_id == context_id, Job.state == JobState.DONE, ~Job.private
        query = select(Job.report, Job.finished_at - Job.started_at).where(*ended)
        rows = self.session.execute(query.order_by(Job.finished_at.desc()).limit(NEWEST))
        return [(report, took_sec) for report, took_sec in rows if report and took_sec]

    def find(self, text: str, owner: str | None) -> Job:
        """The job with this id, or the only one whose id begins so. Raises NotFound; Conflict for several."""
        begin_so = Job.id.startswith(text, autoescape=True)
        query = select(Job).where(begin_so, owned(owner), Job.deleted_at.is_(None))
        query = query.order_by(Job.created_at.desc(), Job.id.desc())
        found = self.session.scalars(query.limit(MOST_NAMED + 1)).all()
        if len(found) < 2 or text in (job.id for job in found):
            return self.get(found[0].id if len(found) == 1 else text, owner)
        named = ", ".join(f"{job.id} ({job.name})" for job in found[:MOST_NAMED])
        more = " and more" if len(found) > MOST_NAMED else ""
        raise Conflict(f"several jobs begin with {text}: {named}{more}", hint=f"mallorn show {found[0].id}")

    def list(
        self,
        owner: str | None,
        state: JobState | None = None,
        cursor: str | None = None,
        limit: int = 50,
        *,
        archived: bool = False,
    ) -> Page[Job]:
        """Newest first: those that are archived, or those that are not."""
        aside = Job.archived_at.is_not(None) if archived else Job.archived_at.is_(None)
        query = select(Job).where(owned(owner), aside, Job.deleted_at.is_(None))
        query = query.order_by(Job.created_at.desc(), Job.id.desc())
        if state is not None:
            query = query.where(Job.state == state)
        if cursor is not None:
            query = query.where(tuple_(Job.created_at, Job.id) < tuple_(*decode_cursor(cursor, float, str)))
        found = self.session.scalars(query.limit(check_limit(limit) + 1)).all()
        return page(found, limit, lambda job: (job.created_at, job.id))

    def move(
        self,
        job_id: str,
        from_states: Collection[JobState],
        to_state: JobState,
        reason: str = "",
        *,
        hold: LeaseToken | None = None,
    ) -> bool:
        """Change the state if it is one of `from_states`, and the stage, if given, still held so."""
        self.lock_job(job_id)
        begun = func.coalesce(Job.started_at, now())
        values = {
            "state": to_state,
            **said(reason),
            "finished_at": now() if to_state.final else None,
            "resume_state": Job.state if to_state is JobState.FAILED else None,
            "started_at": Job.started_at if to_state is JobState.QUEUED else begun,
            **NO_TURN,
        }
        mine = Job.id == job_id, Job.state.in_(from_states)
        fence = () if hold is None else (held(hold),)
        moved = self.changed(update(Job).where(*mine, *fence).values(values)) == 1
        if moved:
            self._enter(job_id, to_state)
        return moved

    def pause(
        self, job_id: str, owner: str | None, why: str = "", cause: Cause = Cause.OTHER, detail: str = ""
    ) -> Job:
        """Stop planning for a job: as its owner wants, or for a reason of the service's own.

        Raises NotFound; Conflict when it is in no state to be paused.
        """
        told = said(why, cause, detail) if why else said(PAUSED_BY_OWNER, Cause.OWNER)
        return self._act(job_id, owner, ACTIVE, JobState.PAUSED, told, resume_state=Job.state)

    def cancel(self, job_id: str, owner: str | None, reason: str = "cancelled by its owner") -> Job:
        """End a job. Raises NotFound; Conflict when it has ended already."""
        return self._act(job_id, owner, (*ACTIVE, JobState.PAUSED), JobState.CANCELLED, said(reason))

    def resume(self, job_id: str, owner: str | None, more_trials: int = 0, *, auto: bool = False) -> Job:
        """Go on with a paused job, or with one that came to its finish and is given more trials, or `auto`.

        Without any, a finish that failed or left something out is done again. A job without a limit, or whose
        minutes are over, has one from then on: more is asked for in trials. Raises NotFound, Conflict.
        """
        job = self.get(job_id, owner)
        state: JobState = JobState.PAUSED
        back: Any = Job.resume_state
        if (more_trials > 0 or (auto and not job.auto)) and came_to_finish(job):
            state, back = JobState(job.state), JobState.TUNING
        elif finish_left_something(job):
            state, back = JobState(job.state), JobState.FINISHING
        changes: dict[str, object] = {"finished_at": None, "archived_at": None}
        if auto:
            changes |= {"trials": None, "minutes": None}
        elif more_trials:
            counted = or_(Job.state != JobState.PAUSED, Job.minutes.is_(None))
            spent = case((counted, sum(count_by_outcome(self.session, [job.id])[job.id].values())))
            changes["trials"] = func.coalesce(Job.trials, spent) + more_trials
        return self._act(job_id, owner, [state], back, said(""), resume_state=None, **changes)

    def _act(
        self,
        job_id: str,
        owner: str | None,
        states: Collection[JobState],
        to: Any,
        told: dict[str, str],
        **changes: Any,
    ) -> Job:
        job = self.get(job_id, owner)
        changes |= {"state": to, **told, **NO_TURN}
        if to is JobState.CANCELLED:
            changes["finished_at"] = now()
        allowed = Job.id == job_id, Job.state.in_(states), Job.deleted_at.is_(None)
        if not self.changed(update(Job).where(*allowed).values(changes)):
            raise Conflict(f"job {job_id} is {job.state}", hint=f"mallorn show {job_id}")
        job = self.get(job_id, owner)
        self._enter(job_id, JobState(job.state))
        return job

    def say(self, job_id: str, reason: str, cause: Cause = Cause.OTHER) -> None:
        """Tell in words what an active job waits for; a paused or ended one keeps the reason it has."""
        news = Job.id == job_id, Job.state.in_(ACTIVE), Job.reason != reason
        self.changed(update(Job).where(*news).values(said(reason, cause)))

    def record(self, job_id: str, **report: Any) -> None:
        """Store what was found out: `graph=` by the import, `tuning_ended=` by the planner, `report=` and
        `export_uri=` (and `export_deleted_at=`) by the finish.
        """
        self.changed(update(Job).where(Job.id == job_id).values(report))

    def bind_context(self, job_id: str, context_id: int) -> int:
        """The job's measuring context: the first one that is bound stays."""
        unbound = Job.id == job_id, Job.context_id.is_(None)
        self.changed(update(Job).where(*unbound).values(context_id=context_id))
        return self.session.execute(select(Job.context_id).where(Job.id == job_id)).scalar_one() or context_id

    def retarget(self, job_id: str, target_id: int) -> None:
        """What its measurer turned out to be stands in for the devices of the target that was asked for."""
        importing = Job.id == job_id, Job.state == JobState.IMPORTING
        self.changed(update(Job).where(*importing).values(target_id=target_id))

    def bind_machine(self, job_id: str, machine: Machine) -> None:
        """What the job's candidates are proposed for: the first one that is bound stays."""
        unbound = Job.id == job_id, Job.machine.is_(None)
        self.changed(update(Job).where(*unbound).values(machine=machine))


def came_to_finish(job: Job) -> bool:
    """Whether a job has ended, or rests, with its tuning behind it."""
    stopped = job.state in (JobState.FAILED, JobState.PAUSED)
    return job.state == JobState.DONE or (stopped and job.resume_state == JobState.FINISHING)


def finish_left_something(job: Job) -> bool:
    """Whether another finish of an ended job may bring what the last one did not."""
    left = job.report is not None and bool(job.report.not_done)
    return came_to_finish(job) and (job.state == JobState.FAILED or left)
