"""Matches a job with devices of its class, and with workers that have its builder.

A builder is the code that compiles candidates, identified by TVM's version and a digest.
"""

from sqlalchemy.orm import Session

from mallorn.core.errors import Unavailable
from mallorn.core.job_options import JobOptions, KeptOptions
from mallorn.core.targets import Target
from mallorn.db.repositories.devices import MachineKey, machine_key_of
from mallorn.db.repositories.job_transitions import ReplacedCode
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.measurement_filters import TrialLimits
from mallorn.db.repositories.measuring_contexts import Contexts
from mallorn.db.repositories.targets import Targets
from mallorn.db.repositories.workers import Workers
from mallorn.db.tables import Context, Job
from mallorn.workers.device.device_class import DeviceClass
from mallorn.workers.host.code_digest import current_builder_name
from mallorn.workers.process.worker_runtime import Runtime


def class_of(key: MachineKey) -> DeviceClass:
    """Return the device class (host class, TVM version, threads) of a machine key."""
    return DeviceClass(key.host_class, key.tvm_version, key.threads)


def class_of_job(session: Session, job: Job) -> DeviceClass | None:
    """Return the class of devices that may time for a job; None without a context."""
    if job.context_id is None:
        return None
    return class_of(machine_key_of(Contexts(session).get(job.context_id)))


def builder_of(options: JobOptions, target: Target) -> str | None:
    """Return this worker's builder for a target; None if the job's measurer needs no TVM."""
    return current_builder_name(target.toolchain) if options.uses_builder else None


def context_without_builder(
    session: Session, job: Job, own_builder: str, worker: str, tuning: bool = True
) -> Context | None:
    """Return the job's measuring context if no live worker has its builder, so that the job
    must change to another one. None if the builder is `own_builder`, or if there is no
    context. Raises Unavailable if another live worker has the builder; the job waits."""
    context = None if job.context_id is None else Contexts(session).get(job.context_id)
    if context is None or context.builder == own_builder:
        return None
    if context.builder in Workers(session).builders(tuning):
        words = (
            f"job {job.id} is built by TVM {context.builder}, and worker {worker} has {own_builder}; "
            "it waits for another"
        )
        raise Unavailable(words, hint="mallorn workers")
    return context


def limits_of(options: JobOptions, target: Target) -> TrialLimits:
    """Return what limits a job's trials: its builder (or measurer) and its timeouts."""
    builder_name = builder_of(options, target) or options.measurer
    return TrialLimits(builder_name, options.build_timeout_sec, options.run_timeout_sec)


def ensure_builder(runtime: Runtime, job: Job) -> Job:
    """Ensure that a single builder (version of the compiling code) compiles all of a job's
    candidates; return the job.

    If no live worker has the builder of the job's context, move the job to a context with
    this worker's builder. Raises Unavailable if another live worker has it.
    """
    if not KeptOptions.model_validate(job.options).uses_builder:
        return job
    with runtime.database.session() as session:
        own_builder = current_builder_name(Targets(session).get(job.target_id).toolchain)
        if not context_without_builder(session, job, own_builder, runtime.name):
            return job
    with runtime.database.transaction() as session:
        Jobs(session).lock_jobs([job.id])
        job = Jobs(session).get(job.id, None)
        context = context_without_builder(session, job, own_builder, runtime.name)
        if context is not None:
            ReplacedCode(session).move_to_new_builder(job.id, context, own_builder)
        return Jobs(session).get(job.id, None)
