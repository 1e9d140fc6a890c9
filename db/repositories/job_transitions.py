"""Fail, pause, cancel or (after its code was replaced) continue a job with its rounds."""

from typing import Final

from sqlalchemy import null, update
from sqlalchemy.orm import Session

from mallorn.core.errors import MallornError
from mallorn.core.states import JobState, Waiting
from mallorn.core.values.event import CancelledEvent, FailedEvent, PausedEvent
from mallorn.core.values.graph_report import GraphReport
from mallorn.core.values.job import JobStep
from mallorn.db.repositories.job_events_and_warnings import Events, NewJobWarning, Warnings
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.learning_curves import LearningCurves
from mallorn.db.repositories.leases import FinishSteps, LeaseToken
from mallorn.db.repositories.measuring_contexts import Contexts
from mallorn.db.repositories.rounds import Rounds
from mallorn.db.tables import Context, Job

SOURCE: Final = "an upgrade"
IMPORTED_ANEW: Final = "the model is imported again: the code for tasks was replaced"


def fail_job(
    session: Session, job_id: str, state: JobState, error: MallornError, hold: LeaseToken | None = None
) -> bool:
    """Fail a job and cancel its rounds; False if its state or lease has changed."""
    jobs = Jobs(session)
    if not jobs.move_to_state(job_id, [state], JobState.FAILED, error.message, error.hint, hold=hold):
        return False
    Rounds(session).cancel_open(job_id)
    event = failure(error)
    jobs.store_report_columns(job_id, suggest=event.suggest)
    Events(session).append(job_id, event)
    return True


def pause_job(session: Session, job_id: str, error: MallornError) -> None:
    """Pause a tuning job because of an error, and show the user how to resume it."""
    if Jobs(session).get(job_id, None).state == JobState.TUNING:
        next_step = f"{error.hint}   (then: mallorn resume {job_id})"
        Jobs(session).pause(job_id, None, Waiting(error.message, next_step))
        Rounds(session).cancel_queued(job_id)
        Events(session).append(job_id, PausedEvent(state=JobState.PAUSED, reason=error.message))


def cancel(session: Session, job_id: str, owner: str | None, because: str) -> Job:
    """Cancel a job and its rounds. Raises NotFound if there is none, Conflict if ended."""
    job = Jobs(session).cancel(job_id, owner, f"cancelled {because}")
    Rounds(session).cancel_open(job_id)
    Events(session).append(job_id, CancelledEvent(state=JobState(job.state), trials=job.trials))
    return job


def failure(error: MallornError) -> FailedEvent:
    fields = {"error": error.code, "detail": error.message, "hint": error.hint}
    return FailedEvent.model_validate(fields | ({"suggest": error.suggest} if error.suggest else {}))


class ReplacedCode(Jobs):
    """Adapts jobs to an upgrade that replaced the code with which they began."""

    def move_to_new_builder(
        self, job_id: str, old: Context, built_by: str, tvm_version: str | None = None
    ) -> None:
        """Move a job to a measuring context like `old`, but with another builder.

        `tvm_version` is the device's TVM, None if it is the same. The job's machine is
        chosen again. A job with measurements in `old` gets a warning.
        """
        code = {"built_by": built_by, "tvm_version": tvm_version or old.tvm_version}
        new = Contexts(self.session).ensure_like(old, **code)
        is_bound = Job.id == job_id, Job.context_id == old.id
        update_query = update(Job).where(*is_bound).values(context_id=new.id, machine=null())
        has_moved = self.execute_and_count(update_query) == 1
        if has_moved:
            LearningCurves(self.session).drop_of_job(job_id)
        if has_moved and Contexts(self.session).has_measured(old.id, job_id):
            self._warn(
                job_id,
                "the code that builds and times its candidates was replaced "
                f"({old.builder}, now {new.builder}). Earlier times are not comparable with new ones: "
                "they guide the search and are measured again before they count. "
                "Trials that were spent stay spent",
                f"mallorn resume {job_id} --trials N   (to add trials)",
            )

    def import_again(self, job_id: str) -> bool:
        """Move a tuning or finishing job back to its import stage, and warn its owner.

        Its open rounds end but keep their measurements; its finish stage starts again.
        Return False if the job is in another state.
        """
        if not self._queue_import(job_id, IMPORTED_ANEW):
            return False
        self._warn(
            job_id,
            "the code that makes tasks of its model was replaced, so the model is imported anew. Tasks that "
            "are still the same keep their trials; tasks that the model no longer has get no further ones",
        )
        return True

    def import_with_graph_passes(self, job_id: str, graph: GraphReport, because: str) -> None:
        """Store another report of graph passes, and import the job again with these."""
        if self._queue_import(job_id, because):
            self.store_report_columns(job_id, graph=graph)

    def _queue_import(self, job_id: str, because: str) -> bool:
        states = JobState.TUNING, JobState.FINISHING
        if not self.move_to_state(job_id, states, JobState.QUEUED, step=JobStep(name=because)):
            return False
        Rounds(self.session).cancel_open(job_id)
        FinishSteps(self.session).forget(job_id)
        return True

    def _warn(self, job_id: str, message: str, hint: str = "") -> None:
        Warnings(self.session).add(job_id, NewJobWarning(SOURCE, message, hint))
