"""A second chance for what may have died of a busy host."""

import logging
from collections.abc import Callable
from typing import TypeVar

from workers.children.errors import ChildCrashed

log = logging.getLogger(__name__)
T = TypeVar("T")


def twice(work: Callable[[], T]) -> T:
    """What a helper process answers, asked once more where it died."""
    try:
        return work()
    except ChildCrashed as error:
        log.warning("once more: %s", error)
        return work()
