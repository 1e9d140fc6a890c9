"""Keeps promoted schedules in a form that people read: the page shows it, and only TVM can write it."""

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict

from mallorn.core.artifacts import reaching, scripts_uri
from workers.children.errors import ChildError
from workers.faces.graphs import Graphs
from workers.finish.winners import Winner
from workers.slot.stage import Stage

log = logging.getLogger(__name__)


def keep_scripts(claimed: Stage, winners: Sequence[Winner], graphs: Graphs) -> None:
    """Store the scripts of each winner; those that cannot be printed are left out."""
    for winner in winners:
        claimed.lease.check()
        try:
            _keep(claimed, winner, graphs)
        except ChildError as error:
            log.warning("no script of %s: %s", winner.contest.task.name, error)


def _keep(claimed: Stage, winner: Winner, graphs: Graphs) -> None:
    program = winner.contest.program
    url = scripts_uri(claimed.runtime.settings.artifacts, program.key, winner.trace)
    with reaching(url) as (store, path):
        if store.exists(path):
            return
        scripts = graphs.scripts(program.tir, winner.trace)
        store.makedirs(store._parent(path), exist_ok=True)
        store.pipe_file(path, json.dumps(asdict(scripts)).encode())
