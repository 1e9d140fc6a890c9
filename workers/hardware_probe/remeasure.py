"""A machine that was measured while its host was busy: it says so, or trials compute more than it can."""

import logging
from collections.abc import Iterator
from typing import Final

from sqlalchemy.orm import Session

from db.repositories.devices import Devices, like_of
from db.repositories.jobs import Jobs
from db.repositories.measuring_contexts import Contexts
from db.repositories.targets import Targets
from db.repositories.tasks import Tasks
from db.repositories.trials import Trials
from db.repositories.workloads import Workloads
from db.tables import Job
from mallorn.core.states import JobState
from mallorn.core.targets import Target
from mallorn.core.values.machine import Machine, peak_gflops
from workers.hardware_probe.run import measured_by_us
from workers.interfaces.tensor_arguments import unpack_arguments
from workers.measure.roofline_check import REFUSED
from workers.process.worker_runtime import Runtime
from workers.tvm.code_digest import builder

BEATEN: Final = 1.05  # times the peak: a clock varies by less
SURE_SEC: Final = 600.0  # for which what was just measured is not doubted: operations may be counted wrongly
log = logging.getLogger(__name__)


def remeasure_if_beaten(runtime: Runtime, job_id: str) -> None:
    """Measure the machine of a job that is over again, if that was disturbed, or a trial beat the peak.

    Jobs keep what they are bound to.
    """
    with runtime.database.session() as session:
        job = Jobs(session).get(job_id, None)
        if job.context_id is None or job.state != JobState.DONE:
            return
        like = like_of(Contexts(session).get(job.context_id))
        machine = Devices(session).machine_before(like, SURE_SEC, builder())
        if machine is None:
            return
        # A peak that was measured far too low has honest times refused, which then beat nothing.
        refused = Trials(session).any_failed_with(job.id, REFUSED)
        beaten = refused or max(_shares(session, job, machine), default=0.0) > BEATEN
        if not (machine.disturbed or beaten):
            return
        target = Target(Targets(session).get(job.target_id).text)
    log.warning("%s: what its machine computes is measured once more", like.host_class)
    measured_by_us(runtime, like, target, doubted=True)


def _shares(session: Session, job: Job, machine: Machine) -> Iterator[float]:
    """What the fastest trial of each workload computes, beside the peak of its types where that is known."""
    for workload in Workloads(session).get_many([task.workload_id for task in Tasks(session).list(job.id)]):
        types = {dtype for _, dtype, _ in unpack_arguments(workload.args).args}
        if not types & machine.gflops.keys():
            continue
        for trial in Trials(session).best(workload.id, job.target_id, 1, job.context_id):
            if trial.latency_us:
                yield workload.flops / trial.latency_us / 1e3 / peak_gflops(machine, types)
