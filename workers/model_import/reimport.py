"""A job goes on with tasks that the passes of today make of its model, and with no others."""

from sqlalchemy.orm import Session

from db.repositories.jobs import Jobs
from db.repositories.measuring_contexts import Contexts
from db.repositories.replaced_code import IMPORTED_ANEW, ReplacedCode
from db.repositories.workers import Workers
from mallorn.core.errors import Unavailable
from mallorn.core.job_options import KeptOptions
from mallorn.core.values.graph_report import GraphReport
from workers.process.match_devices_and_builder import builder_of
from workers.process.worker_runtime import Runtime
from workers.tvm.code_digest import code_digest


def reimport(session: Session, job_id: str) -> bool:
    """Have a job that tunes or finishes imported anew before it goes on; False if it is in another state.

    Whoever holds a round or the finish of the job holds it no longer.
    """
    return ReplacedCode(session).import_anew(job_id)


def settle_import(runtime: Runtime, job_id: str) -> None:
    """See that a job's tasks were made by the code of this worker.

    Raises Unavailable where they were not: the job waits for a live worker with that code, or for its new
    import.
    """
    with runtime.database.transaction() as session:
        Jobs(session).lock_job(job_id)
        job = Jobs(session).get(job_id, None)
        code = (job.graph or GraphReport()).code
        if code == code_digest():
            return
        ours = builder_of(KeptOptions.model_validate(job.options))
        context = None if job.context_id is None else Contexts(session).get(job.context_id)
        is_ours = ours is not None and context is not None and context.builder == ours
        waits = not is_ours and any(each.endswith(f"+{code}") for each in Workers(session).builders())
        if not waits:
            reimport(session, job_id)
    if waits:
        words = (
            f"the tasks of job {job_id} were made by code {code}, and worker {runtime.name} has other code"
        )
        raise Unavailable(f"{words}; it waits for another", hint="mallorn workers")
    raise Unavailable(IMPORTED_ANEW)
