"""Keeps the fleet's two lists fresh: this worker, and the devices under its tracker."""

import logging
import os
import threading
from collections.abc import Callable

from db.repositories.devices import Devices, SeenDevice
from db.repositories.targets import Targets
from db.repositories.workers import Workers
from db.session import Database
from mallorn.core.errors import MallornError
from mallorn.core.hosts import host_id
from mallorn.core.libraries import runnable
from mallorn.core.targets import parse_target
from mallorn.core.values.fleet import WorkerInfo
from workers.measure.fleet import Fleet, TrackedDevice

log = logging.getLogger(__name__)

EVERY_SEC = 5.0
MISSED_SEC = 2 * EVERY_SEC  # a tracker that starts again is without its devices for a moment


class RollCall:
    """A thread that reports every few seconds, and at once when the work changes."""

    def __init__(self, database: Database, fleet: Fleet, name: str) -> None:
        self._database = database
        self._fleet = fleet
        self._name = name
        self._busy_with = ""
        self._info = WorkerInfo(pid=os.getpid())
        self._wake = threading.Event()
        self._met: Callable[[str], object] | None = None
        self._told: set[str] = set()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="roll-call", daemon=True)

    def start(self, sandbox: str, tunes: bool = True, met: Callable[[str], object] | None = None) -> None:
        """Appear in the fleet, as a slot that tunes or as one that only imports.

        `sandbox` says how far the walls around its children close. `met` is told once of each device of
        whose machine nothing is known.
        """
        self._met = met
        self._info = WorkerInfo(pid=os.getpid(), tunes=tunes, cost_models=runnable(), sandbox=sandbox)
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

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._wake.clear()
            self._tell(self._report_worker)
            self._tell(self._report_devices)
            self._wake.wait(EVERY_SEC)

    @staticmethod
    def _tell(report: Callable[[], None]) -> None:
        try:
            report()
        except MallornError as error:
            log.warning("roll call: %s", error)

    def _report_worker(self) -> None:
        with self._database.transaction() as session:
            Workers(session).seen(self._name, host_id(), self._info, self._busy_with)

    def _report_leave(self) -> None:
        with self._database.transaction() as session:
            Workers(session).seen(self._name, host_id(), self._info.model_copy(update={"stopped": True}))

    def _report_devices(self) -> None:
        devices = self._fleet.devices()
        with self._database.transaction() as session:
            for device in devices:
                Devices(session).seen(_seen(device, Targets(session)))
            Devices(session).missed([device.endpoint.name for device in devices], MISSED_SEC)
            rows = [Devices(session).get(device.endpoint.name) for device in devices]
            unknown = {row.name for row in rows if row is not None and row.machine is None}
        if self._met is not None:
            for name in unknown - self._told:
                self._met(name)
            self._told |= unknown


def _seen(device: TrackedDevice, targets: Targets) -> SeenDevice:
    endpoint = device.endpoint
    return SeenDevice(
        name=endpoint.name,
        target_id=targets.ensure(parse_target(device.target)).id,
        host_id=endpoint.host_id,
        host_class=endpoint.host_class,
        threads=endpoint.threads,
        tvm_version=endpoint.tvm_version,
        info=endpoint.info.model_copy(update={"busy": device.busy}),
    )
