"""Route that submits a job."""

import hashlib
from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated, Final, get_args

from fastapi import APIRouter, Header, Request, Response
from sqlalchemy.orm import Session

from mallorn.core.check_option_kwargs import check_options
from mallorn.core.check_plugin_classes import ANY, check_allowed_classes
from mallorn.core.errors import MissingPackage
from mallorn.core.installation import RESEARCH, pip_install_command
from mallorn.core.job_options import JobOptions
from mallorn.core.registry import PLANNER_SEAMS, RESEARCH_NAMES, WORDS, libraries_of, resolve
from mallorn.core.states import DatasetUse
from mallorn.core.values.event import SubmittedEvent
from mallorn.core.values.fleet import WorkerInfo
from mallorn.core.values.job import JobStatus
from mallorn.core.version import API
from mallorn.core.virtual_devices import add_virtual_device, check_device_seconds, check_files
from mallorn.db.repositories.access_control import Usage
from mallorn.db.repositories.job_events_and_warnings import Events
from mallorn.db.repositories.jobs import JobLabels, Jobs, NewJob
from mallorn.db.repositories.stored_files import Models
from mallorn.db.repositories.targets import Targets
from mallorn.db.repositories.workers import Workers
from mallorn.services.coordinator.fleet.routes import SILENT_SEC, named_target
from mallorn.services.coordinator.jobs.job_request_bodies import JobIn
from mallorn.services.coordinator.jobs.job_views import job_out
from mallorn.services.coordinator.web.app_parts import AppParts, PartsDep
from mallorn.services.coordinator.web.caller_dependencies import OwnerDep
from mallorn.services.coordinator.web.quotas import check_work_quotas

router = APIRouter(prefix="/jobs", tags=["jobs"])
KeyHeader = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        description="A repeated request with this key returns the first job, not a new one.",
    ),
]
REPEATED: Final = "The job that an earlier request with this Idempotency-Key created."


@router.post(
    "", status_code=HTTPStatus.CREATED, responses={200: {"model": JobStatus, "description": REPEATED}}
)
def submit_job(
    parts: PartsDep,
    owner: OwnerDep,
    http_request: Request,
    request: JobIn,
    response: Response,
    idempotency_key: KeyHeader = None,
) -> JobStatus:
    """Submit a job for an uploaded model."""
    job, is_new = create_or_find_job(parts, owner, request, idempotency_key)
    response.status_code = HTTPStatus.CREATED if is_new else HTTPStatus.OK
    response.headers["Location"] = f"{http_request.scope['root_path']}{API}/jobs/{job.id}"
    return job


def create_or_find_job(
    parts: AppParts, owner: str, request: JobIn, idempotency_key: str | None
) -> tuple[JobStatus, bool]:
    """Create a job, or find it by idempotency key; return the job and whether it is new.

    Raises NotFound for an unknown model, InvalidRequest for an unknown name, ClassRefused
    for a class that the operator does not allow, InvalidTarget for a wrong target, and
    Conflict if the key belongs to another request or no device defines `local` yet. Raises
    NoDevice if no such device is online, MissingPackage if no worker can run the cost
    model, TooMany over a quota.
    """
    check_options(request.options, request.trials, request.minutes)
    asks_keys = parts.door.needs_credentials()
    check_files(request.options, parts.settings, asks_keys)
    check_device_seconds(request.options, parts.settings, asks_keys)
    plugins = parts.settings.plugins
    # With API keys, the list entry that allows any class is ignored.
    if ANY in plugins and asks_keys:
        plugins = [plugin for plugin in plugins if plugin != ANY]
    check_allowed_classes(request.options, plugins)
    with parts.database.transaction() as session:
        Models(session).lock_model(request.model_id)
        Usage(session).lock_owner_usage(owner)
        model = Models(session).get(request.model_id, owner)
        requested = named_target(session, request.target)
        target = add_virtual_device(requested, request.options.measurer)
        options = request.options.with_target_defaults(target)
        dataset = max(request.options.dataset, parts.settings.dataset, key=get_args(DatasetUse).index)
        new_job = NewJob(
            owner=model.owner,
            name=request.name or model.name,
            model_id=model.id,
            target_id=Targets(session).ensure(target).id,
            trials=request.trials if request.options.needs_measurements else 0,
            minutes=request.minutes,
            seed=request.seed,
            options=options.model_dump(mode="json") | {"dataset": dataset},
            priority=request.priority,
            idempotency_key=idempotency_key,
            request_hash=hash_request(request),
        )
        job, is_new = Jobs(session).create(new_job)
        if is_new:
            check_libraries(session, options)
            check_work_quotas(session, parts.settings, owner)
            JobLabels(session).change(job.id, request.labels)
            Events(session).append(job.id, SubmittedEvent(trials=job.trials, minutes=job.minutes))
        answer = job_out(session, job)
    if is_new:
        parts.waker.wake_for_job(answer.state, answer.id, answer.target)
    return answer, is_new


def hash_request(request: JobIn) -> str:
    """Return a hash of what a caller sent. A new field's default does not change it, so
    that a request repeated after an upgrade is the same."""
    return hashlib.sha256(request.model_dump_json(exclude_unset=True).encode()).hexdigest()


def check_libraries(session: Session, options: JobOptions) -> None:
    """Raise MissingPackage if workers are live but none of them has the libraries of a choice.

    Without a live worker the job waits. A worker of an older version, which does not report
    its cost models, counts as able. Also raises it if the planner lacks one.
    """
    seams = RESEARCH_NAMES.keys() & JobOptions.model_fields.keys()
    for seam in sorted(seams & PLANNER_SEAMS):
        if (name := getattr(options, seam)) in RESEARCH_NAMES[seam]:
            resolve(seam, name)
    live = [worker for worker in Workers(session).list(SILENT_SEC) if not worker.info.stopped]
    tuning = {worker.id: worker.info for worker in live if worker.info.can_tune}
    for seam in sorted(seams - PLANNER_SEAMS):
        name = getattr(options, seam)
        if libraries := missing_libraries(name, [*tuning.values()], seam):
            hosts = ", ".join(sorted({worker.rsplit("-", 2)[0] for worker in tuning}))
            words, extras = " and ".join(libraries), ",".join({*libraries} - {RESEARCH})
            raise MissingPackage(
                f"the {WORDS[seam]} {name} needs {words}, which no worker on {hosts} has",
                hint=f"{pip_install_command(extras, RESEARCH)}   (on a worker's host; then restart it)",
            )


def missing_libraries(name: str, workers: Sequence[WorkerInfo], seam: str = "cost_model") -> list[str]:
    """Return libraries of a choice that no worker has; empty if a worker can run it.

    The cost models that workers report tell which libraries they have.
    """
    reported = [worker.cost_models for worker in workers if worker.cost_models is not None]
    if not reported or len(reported) < len(workers):
        return []
    if seam == "cost_model" and any(name in names for names in reported):
        return []
    models = {model for names in reported for model in names}
    installed = {library for model in models for library in libraries_of(model)}
    required = libraries_of(name, seam)
    return sorted(required - installed or (required if seam == "cost_model" else ()))
