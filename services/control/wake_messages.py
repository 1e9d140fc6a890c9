"""Celery messages that planning and periodic work return, to be sent after the commit."""

from typing import Final

from mallorn.core import queues
from mallorn.core.states import WorkKind
from mallorn.db.repositories.leases import WorkItem

Message = tuple[str, *tuple[object, ...]]  # a task's name and its arguments

#: The Celery task for each kind of work; planning has none here, as its task names a job.
TASKS: Final = {
    WorkKind.IMPORT: queues.IMPORT_MODEL,
    WorkKind.ROUND: queues.RUN_ROUND,
    WorkKind.FINISH: queues.FINISH_JOB,
}


def message_of(item: WorkItem) -> Message:
    """Return the Celery message for an import, round or last stage (finish) of a job."""
    return TASKS[item.kind], int(item.subject) if item.kind is WorkKind.ROUND else item.subject
