"""Celery messages that planning and periodic work return, to be sent after the commit."""

from mallorn.core import queues
from mallorn.core.targets import Target

Message = tuple[str, *tuple[object, ...]]  # a task's name and its arguments


def wake_worker(target: Target, builder: str = "") -> Message:
    """Return the message that wakes a worker for a target and, if given, of a builder."""
    return queues.WORK, queues.capability(target.toolchain, builder)
