"""Keeps the fleet's two lists fresh: this worker, and the devices under its tracker."""

import logging
import os
import threading
import time
from collections.abc import Callable

from db.repositories.base import ERROR_CHARS
from db.repositories.devices import Devices, MachineKey, SeenDevice, like_of
from db.repositories.jobs_waiting_for_device import JobsWaitingForDevice
from db.repositories.targets import Targets
from db.repositories.workers import Workers
from db.session import Database
from mallorn.core.cost_model_libraries import runnable
from mallorn.core.errors import MallornError
from mallorn.core.host_id import host_id
from mallorn.core.surviving_loop import tell
from mallorn.core.targets import parse_target
from mallorn.core.values.fleet import WorkerInfo
from workers.host.core_lock import lock_identity
from workers.measure.tracked_devices import Fleet, TrackedDevice
from workers.tvm.code_digest import TVM_VERSION, builder

log = logging.getLogger(__name__)

EVERY_SEC = 5.0
TIDY_SEC = 60.0
ENOUGH_SEC = 3.0  # so lately somebody else's roll call has seen a device: that does for all
# A device that starts together with this worker is looked for more often, for so long.
SOON_SEC, START_SEC = 0.5, 60.0
MISSED_SEC = 2 * EVERY_SEC  # a tracker that starts again is without its devices for a moment


class Heartbeat:
    """A thread that reports every few seconds, and at once when the work changes."""

    def __init__(self, database: Database, fleet: Fleet, name: str) -> None:
        self._database = database
        self._fleet = fleet
        self._name = name
        self._busy_with = ""
        self._info = WorkerInfo(pid=os.getpid())
        self._wake = threading.Event()
        self._meet: Callable[[str], object] = lambda _: None
        self._plan: Callable[[str], object] = lambda _: None
        self._tidy: Callable[[], None] = lambda: None
        self._tidy_again = 0.0
        self._look_again = 0.0  # what wakes us is the worker's news, not the devices'
        self._look_soon_until = 0.0
        self._met: set[tuple[str, MachineKey]] = set()  # those that were seen here, as what they were
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="roll-call", daemon=True)

    def start(
        self,
        sandbox: str,
        tunes: bool = True,
        met: Callable[[str], object] | None = None,
        tidy: Callable[[], None] | None = None,
        plan: Callable[[str], object] | None = None,
    ) -> None:
        """Appear in the fleet, as a slot that tunes or as one that only imports.

        `sandbox` says how far the walls around its children close. `met` is told once of each device of
        whose machine nothing is known. `tidy` removes from this host what was deleted, once a minute.
        `plan` is told a job for the target of each device that is new here: it may have waited.
        """
        self._meet, self._tidy, self._plan = met or self._meet, tidy or self._tidy, plan or self._plan
        self._look_soon_until = time.monotonic() + START_SEC
        self._info = WorkerInfo(
            pid=os.getpid(),
            tunes=tunes,
            cost_models=runnable(),
            sandbox=sandbox,
            tvm_version=TVM_VERSION,
            builder=builder(),
        )
        self._thread.start()

    def stop(self) -> None:
        """Report no more, and say so: who is silent without a word may have died."""
        self._stopped.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
            self._tell(self._report_leave)

    def busy_with(self, what: str) -> None:
        """Say what this worker does; empty: nothing."""
        self._busy_with = what
        self._wake.set()

    def rests(self, why: str) -> None:
        """Say why this worker takes no work for now; empty: it does."""
        self._tell_of(resting=why)
        self.busy_with(f"resting: {why}" if why else "")

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._wake.clear()
            self._turn()
            is_new = not self._met and time.monotonic() < self._look_soon_until
            self._wake.wait(SOON_SEC if is_new else EVERY_SEC)

    def _turn(self) -> None:
        self._tell_of(locks=lock_identity())
        self._tell(self._report_worker)
        if time.monotonic() >= self._look_again:
            self._tell_of(roll_call_error=self._tell(self._report_devices))
            self._look_again = time.monotonic() + (EVERY_SEC if self._met else SOON_SEC)
        if time.monotonic() >= self._tidy_again:
            self._tidy_again = time.monotonic() + TIDY_SEC
            self._tell(self._tidy)

    def _tell_of(self, **told: str) -> None:
        self._info = self._info.model_copy(update=told)

    @staticmethod
    def _tell(report: Callable[[], None]) -> str:
        """What went wrong: whatever it was, the next turn may do."""
        try:
            report()
        except MallornError as error:
            log.warning("roll call: %s", error)
            return error.headline
        except Exception as error:
            tell("a roll call came to nothing", error)
            return f"{type(error).__name__}: {error}"[:ERROR_CHARS]
        return ""

    def _report_worker(self) -> None:
        with self._database.transaction() as session:
            Workers(session).seen(self._name, host_id(), self._info, self._busy_with)

    def _report_leave(self) -> None:
        with self._database.transaction() as session:
            Workers(session).seen(self._name, host_id(), self._info.model_copy(update={"stopped": True}))

    def _report_devices(self) -> None:
        devices = self._fleet.devices()
        with self._database.transaction() as session:
            targets, rows = Targets(session), Devices(session)
            ids = {text: targets.ensure(parse_target(text)).id for text in {each.target for each in devices}}
            seen = {device.endpoint.name: _seen(device, ids[device.target]) for device in devices}
            rows.seen_all(seen.values(), ENOUGH_SEC)
            rows.missed(seen, MISSED_SEC)
            new = {name for name, device in seen.items() if (name, like_of(device)) not in self._met}
            unmeasured = rows.unmeasured(new)
            waiting = JobsWaitingForDevice(session).one_of_each({seen[name].target_id for name in new})
        self._met |= {(name, like_of(seen[name])) for name in new}
        for name in sorted(unmeasured):
            self._meet(name)
        for job_id in waiting:
            self._plan(job_id)


def _seen(device: TrackedDevice, target_id: int) -> SeenDevice:
    endpoint = device.endpoint
    return SeenDevice(
        name=endpoint.name,
        target_id=target_id,
        host_id=endpoint.host_id,
        host_class=endpoint.host_class,
        threads=endpoint.threads,
        tvm_version=endpoint.tvm_version,
        info=endpoint.info.model_copy(update={"busy": device.busy}),
    )
