"""Keeps promoted schedules in a form that people read: the page shows it, and only TVM can write it."""

import json
import logging
from collections.abc import Sequence
from typing import Final

import fsspec

from mallorn.core.artifacts import scripts_uri
from workers.children.child import Child
from workers.children.errors import ChildError
from workers.finish.winners import Winner
from workers.slot.stage import Stage

PRINT_TIMEOUT_SEC: Final = 60.0
log = logging.getLogger(__name__)


def keep_scripts(claimed: Stage, winners: Sequence[Winner], graphs: Child) -> None:
    """Store the scripts of each winner. One that cannot be printed is as good as before, and is left out."""
    for winner in winners:
        claimed.lease.check()
        try:
            _keep(claimed, winner, graphs)
        except ChildError as error:
            log.warning("no script of %s: %s", winner.contest.task.name, error)


def _keep(claimed: Stage, winner: Winner, graphs: Child) -> None:
    program = winner.contest.program
    url = scripts_uri(claimed.runtime.settings.artifacts, program.key, winner.trace)
    store, path = fsspec.url_to_fs(url)
    if store.exists(path):
        return
    scripts = graphs.call("scripts", PRINT_TIMEOUT_SEC, tir=program.tir, trace=winner.trace)
    store.makedirs(store._parent(path), exist_ok=True)
    store.pipe_file(path, json.dumps(scripts).encode())
