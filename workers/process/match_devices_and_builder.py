"""What of a fleet fits a job: devices whose times compare with its own, and who builds as it did."""

from sqlalchemy.orm import Session

from db.repositories.devices import MachineKey, like_of
from db.repositories.jobs import Jobs
from db.repositories.measurement_filters import TrialLimits
from db.repositories.measuring_contexts import Contexts
from db.repositories.replaced_code import ReplacedCode
from db.repositories.workers import Workers
from db.tables import Context, Job
from mallorn.core.errors import Unavailable
from mallorn.core.job_options import JobOptions, KeptOptions
from mallorn.core.stand_in_measurers import is_built_by_tvm
from workers.device.device_class import DeviceClass
from workers.process.worker_runtime import Runtime
from workers.tvm.code_digest import builder


def class_of(like: MachineKey) -> DeviceClass:
    """What such devices have in common, as they say it themselves."""
    return DeviceClass(like.host_class, like.tvm_version, like.threads)


def class_of_job(session: Session, job: Job) -> DeviceClass | None:
    """That of the devices that may time for a job; None while it has no measuring context: any."""
    if job.context_id is None:
        return None
    return class_of(like_of(Contexts(session).get(job.context_id)))


def builder_of(options: JobOptions) -> str | None:
    """Return what builds here what a job times; None where its measurer builds by other means than TVM."""
    return builder() if is_built_by_tvm(options) else None


def wait_for_builder(
    session: Session, job_id: str, ours: str, worker: str, tuning: bool = True
) -> Context | None:
    """Return the job's context if it names another builder than `ours` and no live worker has that one.

    Raises Unavailable where a live worker has it.
    """
    context_id = Jobs(session).get(job_id, None).context_id
    context = None if context_id is None else Contexts(session).get(context_id)
    if context is None or context.builder == ours:
        return None
    if context.builder in Workers(session).builders(tuning):
        words = f"job {job_id} is built by TVM {context.builder}, and worker {worker} has {ours}"
        raise Unavailable(f"{words}; it waits for another", hint="mallorn workers")
    return context


def limits_of(options: JobOptions) -> TrialLimits:
    """Return what builds a job's candidates here, and how long their steps may take."""
    builder = builder_of(options) or options.measurer
    return TrialLimits(builder, options.build_timeout_sec, options.run_timeout_sec)


def settle_builder(runtime: Runtime, job_id: str) -> None:
    """See that what a job times is built by one builder: the one that its context names, or ours.

    Where no live worker has the one that it names any more, the job goes over to a context with ours.
    Raises Unavailable where another live worker has it.
    """
    with runtime.database.transaction() as session:
        Jobs(session).lock_job(job_id)
        ours = builder_of(KeptOptions.model_validate(Jobs(session).get(job_id, None).options))
        if ours is not None and (was := wait_for_builder(session, job_id, ours, runtime.name)) is not None:
            ReplacedCode(session).rebind(job_id, was, ours)
