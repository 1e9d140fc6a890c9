"""Looks for work whose message was lost, and wakes a worker that can do it."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from kombu.exceptions import OperationalError

from mallorn.core import queues
from mallorn.core.errors import MallornError
from mallorn.core.log_setup import log_survived_error
from mallorn.core.states import WorkKind
from mallorn.core.targets import NATIVE
from mallorn.db.repositories.claim_and_release_work import WorkItems
from mallorn.workers.host.code_digest import current_builder_name
from mallorn.workers.process.worker_runtime import Runtime

EVERY_SEC: Final = 1.0
WAITED_SEC: Final = 1.0  # longer than a message takes
log = logging.getLogger(__name__)


class Lookout:
    """Thread that looks once a second while this worker has nothing to do.

    So work begins within a second whose message was lost, or that its worker gave up.
    """

    def __init__(self, runtime: Runtime, send: Callable[[str, str], object]) -> None:
        self._runtime = runtime
        self._send = send

    def start(self) -> None:
        threading.Thread(target=self._look_repeatedly, name="lookout", daemon=True).start()

    def _look_repeatedly(self) -> None:
        while True:
            time.sleep(EVERY_SEC)
            try:
                self.look()
            except (MallornError, OperationalError) as error:  # the database or the broker is away
                log.debug("the look for waiting work failed: %s", error)
            except Exception as error:
                log_survived_error("a look for waiting work came to nothing", error)

    def look(self) -> None:
        """Wake workers if this one is free and work that it can do waits for long."""
        ability = self._runtime.roll_call.ability
        capability = queues.capability(NATIVE, current_builder_name())
        abilities = {
            queues.IMPORT: ability.for_kinds(WorkKind.IMPORT),
            capability: ability.for_kinds(WorkKind.ROUND, WorkKind.FINISH),
        }
        if not self._runtime.is_free:
            return
        with self._runtime.database.session() as session:
            work = WorkItems(session)
            waiting = [name for name, able in abilities.items() if work.has_waiting(able, WAITED_SEC)]
        for waker in waiting:
            self._send(queues.WORK, waker)
