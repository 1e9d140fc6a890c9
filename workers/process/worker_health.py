"""A worker whose host fails it takes no work for a while, says why, and tries itself again (ADR 0045)."""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from mallorn.core.errors import MallornError
from mallorn.core.os_errors import os_error
from workers.subprocesses.shutdown import STOP
from workers.tvm.linker import blame_the_host, check_linking

FIRST_REST_SEC: Final = 5.0
LONGEST_REST_SEC: Final = 60.0
SOON_SEC: Final = 600.0  # after a rest: who fails again is no better
LOOK_SEC: Final = 0.2  # so soon a worker that shall stop does
log = logging.getLogger(__name__)


class Health:
    """What ails a worker. Each rest that follows soon on another one is twice as long."""

    def __init__(self, tell: Callable[[str], None], tunes: Callable[[], bool]) -> None:
        self._tell = tell
        self._tunes = tunes
        self._ails: MallornError | None = None
        self._rest_sec = FIRST_REST_SEC
        self._well_since = -SOON_SEC

    def fell_ill(self, error: MallornError) -> None:
        """Its host is at fault for what ended its work."""
        self._ails = error

    def recover(self) -> None:
        """Between two pieces of work: return when there is hope for the next, or the worker shall stop."""
        if self._ails is None:
            return
        if time.monotonic() > self._well_since + SOON_SEC:
            self._rest_sec = FIRST_REST_SEC
        while self._ails is not None and not STOP.asked:
            log.error("this worker rests for %.0f s: %s", self._rest_sec, self._ails)
            self._tell(self._ails.headline)
            _sleep(self._rest_sec)
            self._rest_sec = min(2 * self._rest_sec, LONGEST_REST_SEC)
            self._ails = what_ails(self._tunes())
        self._well_since = time.monotonic()
        self._tell("")


def what_ails(tunes: bool) -> MallornError | None:
    """What this host lacks for any work at all, and to build candidates where it `tunes`; None: nothing."""
    try:
        with TemporaryDirectory(prefix="mallorn-check-", ignore_cleanup_errors=True) as folder:
            blame_the_host(Path(folder))
            if tunes:
                check_linking(Path(folder))
    except MallornError as error:
        return error
    except OSError as error:
        return os_error(error, "a temporary file")
    return None


def _sleep(seconds: float) -> None:
    until_sec = time.monotonic() + seconds
    while not STOP.asked and (left_sec := until_sec - time.monotonic()) > 0:
        time.sleep(min(left_sec, LOOK_SEC))
