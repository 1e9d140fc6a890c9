"""A finish compiles the model with the code that imported it: other passes make other tasks of a model."""

from typing import Final

from db.repositories.jobs import Jobs
from graphc.export.zip_graphc import digest
from mallorn.core.errors import LeaseLost
from mallorn.core.states import JobState
from workers.process.leased_stage import StageContext

AGAIN: Final = "its model is imported anew: the code that makes its tasks was replaced"


def import_code() -> str:
    """Return the digest that an import by this worker stores with its job."""
    return digest()


def is_handed_back(stage: StageContext) -> bool:
    """Return whether the job goes back to its import, because other code than this worker's imported it.

    Raises LeaseLost.
    """
    if stage.graph.code == import_code():
        return False
    with stage.runtime.database.transaction() as session:
        if not Jobs(session).move(stage.job.id, [stage.state], JobState.QUEUED, AGAIN, hold=stage.hold):
            raise LeaseLost
    return True
