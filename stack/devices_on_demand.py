"""Devices on demand: one for each target that jobs wait for and that this machine can run."""

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Final, Self

from mallorn.core.device_wait_hint import ServiceAddress, waiting_words
from mallorn.core.errors import MallornError
from mallorn.core.host_id import host_id
from mallorn.core.settings import Settings
from mallorn.core.stand_in_measurers import stand_in
from mallorn.core.targets import Target
from stack.supervised_process import ChildSpec
from stack.supervisor import Supervisor

log = logging.getLogger(__name__)

LOOK_SEC: Final = 1.0
FRESH_SEC: Final = 15.0  # a device that last answered longer ago does not count
UNUSED_SEC: Final = 60.0  # how long a device is kept after its last job, for a next one
WhyNot = Callable[[Target], str]


class DeviceScout:
    """A thread that finds the targets that need a device here, and tells other jobs why they wait."""

    def __init__(self, settings: Settings, why_not: WhyNot | None = None) -> None:
        from db.session import Database
        from workers.device.target_support import why_not as ask_this_host
        from workers.measure.tracked_devices import Fleet

        self.wanted: frozenset[Target] = frozenset()
        self.has_device = False  # whether a worker has reported a device that answers
        self._settings = settings
        self._database = Database(settings.database_url)
        self._fleet = Fleet(settings)
        self._why_not = why_not or ask_this_host
        self._refusals: dict[Target, str] = {}
        self._used_sec: dict[Target, float] = {}
        self._own: set[str] = set()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scout", daemon=True)

    @contextmanager
    def looking(self) -> Iterator[Self]:
        """Run the thread while the block lasts; do not wait for a pending question to TVM."""
        self._thread.start()
        try:
            yield self
        finally:
            self._stopped.set()

    def look(self) -> None:
        """Update `wanted` once. Raises Unavailable if the database or the tracker does not answer."""
        from db.repositories.devices import Devices

        if not self.has_device:
            with self._database.session() as session:
                self.has_device = bool(Devices(session).list(fresh_sec=FRESH_SEC))
        devices = self._fleet.devices()
        # A device of this host that is missing may be restarting: do not start a second one.
        self._own |= {
            device.target
            for device in devices
            if device.endpoint.info.is_local and device.endpoint.host_id == host_id()
        }
        served = {device.target for device in devices} | self._own
        now_sec = time.monotonic()
        for target in self._asked_for():
            if target in self.wanted:
                self._used_sec[target] = now_sec
            elif target.text not in served:
                self._consider(target, now_sec)
        self._used_sec = {target: t for target, t in self._used_sec.items() if now_sec - t < UNUSED_SEC}
        self.wanted = frozenset(self._used_sec)

    def _asked_for(self) -> list[Target]:
        """Return the targets that jobs wait for, except stand-ins for devices."""
        from db.repositories.jobs import JobsWaitingForDevice

        with self._database.session() as session:
            targets = [Target(text) for text in JobsWaitingForDevice(session).targets()]
        return [target for target in targets if not stand_in(target)]

    def _consider(self, target: Target, now_sec: float) -> None:
        from db.repositories.jobs import JobsWaitingForDevice

        if target not in self._refusals:
            self._refusals[target] = self._why_not(target)
        if refusal := self._refusals[target]:
            words = waiting_words(target.text, ServiceAddress.of(self._settings), refusal)
            with self._database.transaction() as session:
                JobsWaitingForDevice(session).set_reason(target.text, words, refusal)
        else:
            self._used_sec[target] = now_sec

    def _run(self) -> None:
        while not self._stopped.wait(LOOK_SEC):
            try:
                self.look()
            except MallornError as error:
                log.warning("devices on demand: %s", error)


class OnDemand:
    """Makes the supervisor start and stop devices for the targets that the scout wants."""

    def __init__(
        self, supervisor: Supervisor, spec_of: Callable[[Target], ChildSpec], say: Callable[[str], None]
    ) -> None:
        self._supervisor = supervisor
        self._spec_of = spec_of
        self._say = say
        self._running: dict[Target, str] = {}

    def adjust(self, wanted: Collection[Target]) -> None:
        """Start and stop devices for these targets. The supervisor's thread calls this repeatedly."""
        for target in set(wanted) - self._running.keys():
            self._say(f"  starting a device for {target}")
            spec = self._spec_of(target)
            self._running[target] = spec.name
            self._supervisor.add(spec)
        for target in self._running.keys() - set(wanted):
            self._say(f"  the device for {target} is not needed any more")
            self._supervisor.remove(self._running.pop(target))
