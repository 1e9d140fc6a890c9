"""Turns a request into a job."""

import hashlib
from http import HTTPStatus
from typing import Annotated, Final

from fastapi import APIRouter, Header, Response
from sqlalchemy.orm import Session

from db.repositories.events import Events
from db.repositories.jobs import Jobs, NewJob
from db.repositories.models import Models
from db.repositories.targets import Targets
from db.repositories.usage import Usage
from db.tables import Model
from mallorn.core import queues
from mallorn.core.allowed_classes import ANY, check_classes
from mallorn.core.asked import check_mode, check_options
from mallorn.core.stand_ins import measured_target
from mallorn.core.targets import LOCAL, parse_target
from mallorn.core.values.event import SubmittedEvent
from mallorn.core.values.job import JobStatus
from services.coordinator.fleet.cost_models import check_cost_model
from services.coordinator.fleet.states import local_target
from services.coordinator.jobs.requests import JobIn
from services.coordinator.jobs.views import job_out
from services.coordinator.web.auth import OwnerDep
from services.coordinator.web.parts import Parts, PartsDep
from services.coordinator.web.quotas import check_work

router = APIRouter(prefix="/jobs", tags=["jobs"])
KeyHeader = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        description="Sent again with the same request it finds the first job instead of making another.",
    ),
]
REPEATED: Final = "The job that this Idempotency-Key made before."


@router.post(
    "", status_code=HTTPStatus.CREATED, responses={200: {"model": JobStatus, "description": REPEATED}}
)
def submit_job(
    parts: PartsDep, owner: OwnerDep, request: JobIn, response: Response, idempotency_key: KeyHeader = None
) -> JobStatus:
    """Submit a job for an uploaded model."""
    job, is_new = submit(parts, owner, request, idempotency_key)
    response.status_code = HTTPStatus.CREATED if is_new else HTTPStatus.OK
    response.headers["Location"] = f"/api/v1/jobs/{job.id}"
    return job


def submit(parts: Parts, owner: str, request: JobIn, idempotency_key: str | None) -> tuple[JobStatus, bool]:
    """The job and whether it is new.

    Raises NotFound for an unknown model, InvalidRequest for an unknown name, ClassRefused for a class that
    the operator does not allow, InvalidTarget, Conflict when
    the key belongs to another request or nothing is known yet of what `local` is, NoDevice when whatever
    said so is silent now, MissingPackage for a cost model that no worker can run, and TooMany.
    """
    check_options(request.options)
    listed = parts.settings.plugins
    # Where keys are asked for, nothing on the list allows any class.
    asks = ANY in listed and parts.door.asks()
    check_classes(request.options, [each for each in listed if each != ANY] if asks else listed)
    check_mode(request.options, request.trials, request.minutes)
    with parts.database.transaction() as session:
        Models(session).hold(request.model_id)
        Usage(session).hold(owner)
        model = Models(session).get(request.model_id, owner)
        new = _new_job(session, model, request, idempotency_key)
        job, is_new = Jobs(session).create(new)
        if is_new:
            check_cost_model(session, request.options.cost_model)
            check_work(session, parts.settings, owner)
            Events(session).append(job.id, SubmittedEvent(trials=job.trials, minutes=job.minutes))
        answer = job_out(session, job)
    if is_new:
        parts.waker.wake(queues.IMPORT_MODEL, answer.id)
    return answer, is_new


def _new_job(session: Session, model: Model, request: JobIn, idempotency_key: str | None) -> NewJob:
    asked_for = local_target(session) if request.target == LOCAL else parse_target(request.target)
    target = measured_target(asked_for, request.options.measurer)
    return NewJob(
        owner=model.owner,
        name=request.name or model.name,
        model_id=model.id,
        target_id=Targets(session).ensure(target).id,
        trials=request.trials if request.options.searches else 0,
        minutes=request.minutes,
        seed=request.seed,
        options=request.options.model_dump(mode="json"),
        priority=request.priority,
        idempotency_key=idempotency_key,
        request_hash=hashlib.sha256(request.model_dump_json().encode()).hexdigest(),
    )
