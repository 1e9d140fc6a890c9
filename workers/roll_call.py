"""Keeps the fleet's two lists fresh: this worker, and the devices under its tracker."""

import logging
import os
import threading

from db.repositories.devices import Devices, SeenDevice
from db.repositories.targets import Targets
from db.repositories.workers import Workers
from db.session import Database
from mallorn.core.errors import MallornError
from mallorn.core.hosts import host_id
from mallorn.core.targets import parse_target
from workers.measure.fleet import Device, Fleet

log = logging.getLogger(__name__)

EVERY_SEC = 5.0


class RollCall:
    """A thread that reports every few seconds, and at once when the work changes."""

    def __init__(self, database: Database, fleet: Fleet, name: str) -> None:
        self._database = database
        self._fleet = fleet
        self._name = name
        self._busy_with = ""
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="roll-call", daemon=True)

    def start(self) -> None:
        """Appear in the fleet."""
        self._thread.start()

    def stop(self) -> None:
        """Report no more."""
        self._stopped.set()
        self._wake.set()

    def busy_with(self, what: str) -> None:
        """Say what this worker does; empty: nothing."""
        self._busy_with = what
        self._wake.set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._wake.clear()
            for report in (self._report_worker, self._report_devices):
                try:
                    report()
                except MallornError as error:
                    log.warning("roll call: %s", error)
            self._wake.wait(EVERY_SEC)

    def _report_worker(self) -> None:
        with self._database.transaction() as session:
            Workers(session).seen(self._name, host_id(), {"pid": os.getpid()}, self._busy_with)

    def _report_devices(self) -> None:
        devices = self._fleet.devices()
        with self._database.transaction() as session:
            for device in devices:
                Devices(session).seen(_seen(device, Targets(session)))


def _seen(device: Device, targets: Targets) -> SeenDevice:
    endpoint = device.endpoint
    return SeenDevice(
        name=endpoint.name,
        target_id=targets.ensure(parse_target(device.target)).id,
        host_id=endpoint.host_id,
        host_class=endpoint.host_class,
        threads=endpoint.threads,
        tvm_version=endpoint.tvm_version,
        info=endpoint.info | {"busy": device.busy},
    )
