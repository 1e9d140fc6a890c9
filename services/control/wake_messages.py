"""What planning, sweeping and reaping ask the caller to send, once their transaction is committed."""

from typing import Final

from db.repositories.leases import WorkItem
from mallorn.core import queues
from mallorn.core.states import WorkKind

Message = tuple[str, *tuple[object, ...]]  # a task's name and its arguments

#: What wakes whoever does a kind of work; planning is woken for jobs, not for targets.
TASKS: Final = {
    WorkKind.IMPORT: queues.IMPORT_MODEL,
    WorkKind.ROUND: queues.RUN_ROUND,
    WorkKind.FINISH: queues.FINISH_JOB,
}


def message_of(item: WorkItem) -> Message:
    """The message that tells of a round or a stage."""
    return TASKS[item.kind], int(item.subject) if item.kind is WorkKind.ROUND else item.subject
