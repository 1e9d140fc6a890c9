"""Worker health: after a fault of its host, a worker pauses and checks it (ADR 0045)."""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Final

from mallorn.core.errors import MallornError
from mallorn.core.os_errors import explain_os_error
from mallorn.core.targets import NATIVE
from mallorn.workers.host.linker import check_linking, raise_if_disk_unusable
from mallorn.workers.process.toolchains import other_instruction_sets
from mallorn.workers.subprocesses.shutdown import STOP

FIRST_REST_SEC: Final = 5.0
LONGEST_REST_SEC: Final = 60.0
SOON_SEC: Final = 600.0  # another fault this soon after a rest doubles the next rest
LOOK_SEC: Final = 0.2  # interval at which a resting worker checks for a stop request
log = logging.getLogger(__name__)


class Health:
    """Makes a worker pause after faults of its host. If faults recur soon, each pause is
    twice as long as the one before, up to a limit."""

    def __init__(self, tell: Callable[[str], None], tunes: Callable[[], bool]) -> None:
        self._report = tell
        self._tunes = tunes
        self._fault: MallornError | None = None
        self._rest_sec = FIRST_REST_SEC
        self._recovered_sec = -SOON_SEC
        self._lock = Lock()

    @property
    def is_resting(self) -> bool:
        """Whether this worker's host has a fault."""
        return self._fault is not None

    def record_fault(self, error: MallornError) -> None:
        """Record a host fault that ended this worker's work."""
        self._fault = error

    def pause_until_healthy(self) -> None:
        """Pause until the host passes its check or the worker is asked to stop."""
        with self._lock:  # one thread checks; the others wait for it
            if self._fault is not None:
                self._pause()

    def _pause(self) -> None:
        if time.monotonic() > self._recovered_sec + SOON_SEC:
            self._rest_sec = FIRST_REST_SEC
        while self._fault is not None and not STOP.requested.is_set():
            log.error("this worker rests for %.0f s: %s", self._rest_sec, self._fault)
            self._report(self._fault.headline)
            _sleep(self._rest_sec)
            self._rest_sec = min(2 * self._rest_sec, LONGEST_REST_SEC)
            self._fault = find_host_fault(self._tunes())
        self._recovered_sec = time.monotonic()
        self._report("")


def find_host_fault(tunes: bool) -> MallornError | None:
    """Return why this host cannot work (or link, if it `tunes`, for an instruction set
    whose linker it has), or None."""
    try:
        with TemporaryDirectory(prefix="mallorn-check-", ignore_cleanup_errors=True) as folder:
            raise_if_disk_unusable(Path(folder))
            if tunes:
                others = other_instruction_sets().items()
                for instruction_set in (NATIVE, *(name for name, lacks in others if not lacks)):
                    check_linking(Path(folder), instruction_set)
    except MallornError as error:
        return error
    except OSError as error:
        return explain_os_error(error, "a temporary file")
    return None


def _sleep(seconds: float) -> None:
    until_sec = time.monotonic() + seconds
    while not STOP.requested.is_set() and (remaining_sec := until_sec - time.monotonic()) > 0:
        time.sleep(min(remaining_sec, LOOK_SEC))
