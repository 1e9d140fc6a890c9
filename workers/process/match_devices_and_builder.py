"""What of a fleet fits a job: devices whose times compare with its own, and who builds as it did."""

from sqlalchemy.orm import Session

from db.repositories.devices import MachineKey, like_of
from db.repositories.jobs import Jobs
from db.repositories.measuring_contexts import Contexts
from db.repositories.workers import FRESH_SEC, Workers
from db.tables import Job
from mallorn.core.errors import HostFault, Unavailable
from mallorn.core.job_options import JobOptions, KeptOptions
from mallorn.core.stand_in_measurers import DEVICE
from workers.device.device_class import DeviceClass
from workers.process.heartbeat import TVM_VERSION
from workers.process.worker_runtime import Runtime


def class_of(like: MachineKey) -> DeviceClass:
    """What such devices have in common, as they say it themselves."""
    return DeviceClass(like.host_class, like.tvm_version, like.threads)


def class_of_job(session: Session, job: Job) -> DeviceClass | None:
    """That of the devices that may time for a job; None while it has no measuring context: any."""
    if job.context_id is None:
        return None
    return class_of(like_of(Contexts(session).get(job.context_id)))


def builder_of(options: JobOptions) -> str | None:
    """The TVM that builds here what a job times; None where a measurer of another kind does as it likes."""
    return TVM_VERSION if options.measurer == DEVICE else None


def settle_builder(runtime: Runtime, job_id: str) -> None:
    """See that what a job times is built by one TVM: what its context says, or ours if nobody has that one.

    Raises Unavailable where another worker has it, HostFault where it was that of a worker that is gone.
    """
    with runtime.database.transaction() as session:
        Jobs(session).lock_job(job_id)
        job = Jobs(session).get(job_id, None)
        ours = builder_of(KeptOptions.model_validate(job.options))
        if job.context_id is None or ours is None:
            return
        context = Contexts(session).get(job.context_id)
        wanted = context.built_by or context.tvm_version
        if wanted == ours:
            return
        words = f"job {job_id} is built by TVM {wanted}, and worker {runtime.name} has {ours}"
        others = [each.info for each in Workers(session).list(FRESH_SEC) if each.info.tunes]
        if any(each.tvm_version == wanted and not each.stopped for each in others):
            raise Unavailable(f"{words}; it waits for another", hint="mallorn workers")
        if not Contexts(session).rebind(job_id, context, ours):
            raise HostFault(words, hint=f"start a worker with TVM {wanted}, or tune the model anew")
