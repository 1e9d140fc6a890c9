"""Routes to pause, resume, cancel, label, archive and delete jobs and their exports."""

from http import HTTPStatus

from fastapi import APIRouter
from sqlalchemy.orm import Session

from mallorn.core.errors import Conflict
from mallorn.core.states import SEARCH, Cause, JobState, Waiting
from mallorn.core.values.event import PausedEvent, ResumedEvent
from mallorn.core.values.job import JobStatus
from mallorn.db.repositories.access_control import Usage
from mallorn.db.repositories.archive_and_delete_jobs import Removals
from mallorn.db.repositories.job_events_and_warnings import Events
from mallorn.db.repositories.job_transitions import cancel
from mallorn.db.repositories.jobs import JobLabels, Jobs, has_incomplete_finish, has_reached_finish
from mallorn.db.tables import Job
from mallorn.services.artifact_removal import remove_export
from mallorn.services.coordinator.jobs.job_request_bodies import JobChangeIn, ResumeIn
from mallorn.services.coordinator.jobs.job_views import hide_private_results, job_out
from mallorn.services.coordinator.web.app_parts import PartsDep
from mallorn.services.coordinator.web.caller_dependencies import CallerDep, JobOwnerDep, OwnerDep
from mallorn.services.coordinator.web.quotas import check_work_quotas

router = APIRouter(prefix="/jobs", tags=["jobs"])
Steered = type[PausedEvent] | type[ResumedEvent]


@router.post("/{job_id}/cancel")
def cancel_job(parts: PartsDep, owner: JobOwnerDep, caller: CallerDep, job_id: str) -> JobStatus:
    """Cancel a job; its measurements stay. Admins may cancel any job."""
    with parts.database.transaction() as session:
        job = cancel(session, job_id, owner, _describe_actor(owner, caller))
        return hide_private_results(caller.owner, job_out(session, job))


@router.post("/{job_id}/pause")
def pause_job(parts: PartsDep, owner: JobOwnerDep, caller: CallerDep, job_id: str) -> JobStatus:
    """Pause a job: no further rounds. Admins may pause any job; only its owner resumes it."""
    waiting = Waiting(f"paused {_describe_actor(owner, caller)}", cause=Cause.OWNER)
    with parts.database.transaction() as session:
        paused = _append_state_event(session, PausedEvent, Jobs(session).pause(job_id, owner, waiting))
        return hide_private_results(caller.owner, paused)


@router.post("/{job_id}/resume")
def resume_job(parts: PartsDep, owner: OwnerDep, job_id: str, request: ResumeIn | None = None) -> JobStatus:
    """Resume a paused job, give a done job more trials, or repeat an incomplete finish."""
    # Without more trials, a finish that failed or left a step out runs again.
    request = request or ResumeIn()
    with parts.database.transaction() as session:
        _check_resumable(Jobs(session).get(job_id, owner), request)
        Usage(session).lock_owner_usage(owner)
        job = Jobs(session).resume(job_id, owner, request.trials, auto=request.auto)
        check_work_quotas(session, parts.settings, owner)
        answer = _append_state_event(session, ResumedEvent, job)
    parts.waker.wake_for_job(answer.state, job_id, answer.target)
    return answer


def _check_resumable(job: Job, request: ResumeIn) -> None:
    adds_trials = request.trials > 0 or (request.auto and not job.has_auto_budget)
    mode = job.options.get("mode", SEARCH)
    is_incomplete = has_incomplete_finish(job)
    if mode != SEARCH and (adds_trials or (job.state == JobState.DONE and not is_incomplete)):
        refusal = f"job {job.id} is {mode}: it measures no candidates"
        raise Conflict(refusal, hint="mallorn tune MODEL --auto   (a search reuses known schedules)")
    if is_incomplete or (adds_trials and has_reached_finish(job)):
        return
    if job.state == JobState.DONE and not adds_trials:
        budget = "minutes" if job.trials is None else f"{job.trials} trials"
        reason = f"ended by itself: {job.tuning_ended}" if job.has_auto_budget else f"has spent its {budget}"
        raise Conflict(f"job {job.id} {reason}", hint=f"mallorn resume {job.id} --trials 100")
    if job.state in (JobState.FAILED, JobState.CANCELLED):
        message = f"job {job.id} has ended: {job.state}"
        raise Conflict(message, hint="submit the model again; results are reused")
    if job.state not in (JobState.PAUSED, JobState.DONE):
        raise Conflict(f"job {job.id} is not paused but {job.state}", hint=f"mallorn watch {job.id}")


def _describe_actor(owner: str, caller: CallerDep) -> str:
    return "by its owner" if owner == caller.owner else "by an admin"


def _append_state_event(session: Session, event: Steered, job: Job) -> JobStatus:
    Events(session).append(job.id, event(state=JobState(job.state), trials=job.trials))
    return job_out(session, job)


@router.patch("/{job_id}")
def change_job(parts: PartsDep, owner: OwnerDep, job_id: str, changes: JobChangeIn) -> JobStatus:
    """Change the labels of a job; labels that are not named stay."""
    with parts.database.transaction() as session:
        job = Jobs(session).get(job_id, owner)
        JobLabels(session).change(job_id, changes.labels)
        return job_out(session, job)


@router.post("/{job_id}/archive")
def archive_job(parts: PartsDep, owner: OwnerDep, job_id: str) -> JobStatus:
    """Archive an ended job: the list of jobs omits it, but nothing is deleted."""
    with parts.database.transaction() as session:
        return job_out(session, Removals(session).archive(job_id, owner))


@router.post("/{job_id}/unarchive")
def unarchive_job(parts: PartsDep, owner: OwnerDep, job_id: str) -> JobStatus:
    """Return an archived job to the list of jobs."""
    with parts.database.transaction() as session:
        return job_out(session, Removals(session).unarchive(job_id, owner))


@router.delete("/{job_id}/export")
def delete_export(parts: PartsDep, owner: OwnerDep, job_id: str) -> JobStatus:
    """Delete an ended job's exported files; resuming with more trials exports them again."""
    with parts.database.transaction() as session:
        Removals(session).delete_export(job_id, owner)
        job = Removals(session).get(job_id, owner)
        answer = job_out(session, job)
    if job.export_uri is not None:
        remove_export(parts.database, job_id, job.export_uri)
    return answer


@router.delete("/{job_id}", status_code=HTTPStatus.NO_CONTENT)
def delete_job(parts: PartsDep, owner: OwnerDep, job_id: str) -> None:
    """Delete an ended job, its log and exported files; its measurements and schedules stay."""
    with parts.database.transaction() as session:
        uri = Removals(session).get(job_id, owner).export_uri
        Removals(session).delete(job_id, owner)
    if uri is not None:
        # If this process dies here, the control process removes the unreferenced files.
        remove_export(parts.database, job_id, uri)
