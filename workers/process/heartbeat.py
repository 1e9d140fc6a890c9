"""Heartbeat thread: reports this worker and its tracker's devices to the database."""

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from typing import Final

from sqlalchemy.orm import Session

from mallorn.core.errors import MallornError
from mallorn.core.host_id import host_id
from mallorn.core.log_setup import log_survived_error
from mallorn.core.registry import list_runnable_cost_models
from mallorn.core.states import WorkKind
from mallorn.core.targets import NATIVE, parse_target
from mallorn.core.values.fleet import WorkerInfo
from mallorn.db.repositories.base import ERROR_CHARS
from mallorn.db.repositories.claim_and_release_work import WorkerAbility
from mallorn.db.repositories.devices import Devices, MachineKey, SeenDevice, machine_key_of
from mallorn.db.repositories.jobs import JobsWaitingForDevice
from mallorn.db.repositories.targets import Targets
from mallorn.db.repositories.withdraw_measurements import CLOCKS_SEC, Withdrawals
from mallorn.db.repositories.workers import FRESH_SEC, Workers
from mallorn.db.session import Database
from mallorn.workers.host.code_digest import TVM_VERSION, current_builder_name
from mallorn.workers.host.host_lock import lock_identity
from mallorn.workers.measure.tracked_devices import Fleet
from mallorn.workers.process.toolchains import missing_tools

log = logging.getLogger(__name__)

EVERY_SEC = 5.0
LEAST_SEC = 1.0  # between two reports, however often the work changes
EVERY_KIND: Final = frozenset({WorkKind.IMPORT, WorkKind.ROUND, WorkKind.FINISH})
TIDY_SEC = 60.0
# An unchanged device that any worker reported this recently is not written again.
ENOUGH_SEC = FRESH_SEC / 2
BUSY_SEC = 3.0  # the same if only `busy` has changed
# A device often starts together with its worker: at first the tracker is polled more often.
SOON_SEC, START_SEC = 0.5, 60.0
MISSED_SEC = ENOUGH_SEC + 2 * EVERY_SEC  # a restarted tracker lists no devices for a moment
REMEMBERED = 4096  # most recent disturbances whose times were marked


class Heartbeat:
    """Thread that reports every EVERY_SEC seconds, and soon when the worker's tasks change."""

    def __init__(self, database: Database, fleet: Fleet, name: str) -> None:
        self._database = database
        self._fleet = fleet
        self._name = name
        self._tasks: list[str] = []
        self._info = WorkerInfo(pid=os.getpid())
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self.on_unmeasured: Callable[[str], object] = lambda _: None
        self._request_plan: Callable[[str], object] = lambda _: None
        self._tidy: Callable[[], None] = lambda: None
        self._next_tidy_sec = 0.0
        self._next_device_poll_sec = 0.0  # a wake-up never announces news of devices
        self._frequent_until_sec = 0.0
        self._reported_devices: set[tuple[str, MachineKey]] = set()
        self.ability = WorkerAbility(frozenset(), frozenset())
        self._handled_disturbances: deque[object] = deque(maxlen=REMEMBERED)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._report_repeatedly, name="roll-call", daemon=True)

    def start(
        self,
        sandbox: str,
        kinds: frozenset[WorkKind] = EVERY_KIND,
        on_unmeasured: Callable[[str], object] | None = None,
        tidy: Callable[[], None] | None = None,
        plan: Callable[[str], object] | None = None,
    ) -> None:
        """Start reporting this worker, which does these kinds of work.

        `sandbox` names the isolation of its child processes. `on_unmeasured` is called with
        the name of each new device whose machine was never measured. `tidy` is called once
        a minute and removes deleted data from this host. `plan` is called with the id of
        one active job for the target of each new device, because the job may be waiting for
        a device.
        """
        self.on_unmeasured = on_unmeasured or self.on_unmeasured
        self._tidy = tidy or self._tidy
        self._request_plan = plan or self._request_plan
        self._frequent_until_sec = time.monotonic() + START_SEC
        lacking = frozenset(name for name, missing in missing_tools().items() if missing)
        self._info = WorkerInfo(
            pid=os.getpid(),
            can_tune=WorkKind.ROUND in kinds,
            cost_models=list_runnable_cost_models(),
            sandbox=sandbox,
            tvm_version=TVM_VERSION,
            builder=current_builder_name(),
            accelerator_builders={
                name: current_builder_name(name) for name in missing_tools().keys() - lacking - {NATIVE}
            },
            missing_tools=dict(missing_tools()),
        )
        self.ability = WorkerAbility(kinds, self._info.builders, lacking_toolchains=lacking)
        self._thread.start()

    def stop(self) -> None:
        """Stop reporting and mark the worker as stopped, so that it does not look dead."""
        self._stopped.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
            self._update_info(stopped=True)
            self._attempt(self.report_worker)

    def begin_task(self, task: str) -> None:
        """Report one more current task of the worker."""
        self._tasks.append(task)
        self._wake.set()

    def end_task(self, task: str) -> None:
        self._tasks.remove(task)
        self._wake.set()

    def report_width(self, width: int) -> None:
        """Report at once how many rounds and stages the worker does at a time."""
        self._update_info(width=width)
        self._attempt(self._report_info)  # `ability` is only changed by the roll call's own thread

    def look_for_devices(self) -> None:
        """List the tracker's devices soon: one may have come for which work waits."""
        if self._next_device_poll_sec < time.monotonic() + EVERY_SEC - SOON_SEC:
            self._next_device_poll_sec = 0.0
            self._wake.set()

    def report_pause(self, reason: str) -> None:
        """Report why the worker pauses (a fault of its host); empty if it works again."""
        self._update_info(missing_resource=reason)
        self._wake.set()

    def _report_repeatedly(self) -> None:
        while not self._stopped.is_set():
            self._wake.clear()
            next_sec = time.monotonic() + LEAST_SEC
            self.report_once()
            is_early = not self._reported_devices and time.monotonic() < self._frequent_until_sec
            self._wake.wait(SOON_SEC if is_early else EVERY_SEC)
            if not is_early:
                self._stopped.wait(next_sec - time.monotonic())

    def report_once(self) -> None:
        self._update_info(lock_file=lock_identity())
        self._attempt(self.report_worker)
        if time.monotonic() >= self._next_device_poll_sec:
            self._update_info(device_list_error=self._attempt(self.report_devices))
            wait_sec = EVERY_SEC if self._reported_devices else SOON_SEC
            self._next_device_poll_sec = time.monotonic() + wait_sec
        if time.monotonic() >= self._next_tidy_sec:
            self._next_tidy_sec = time.monotonic() + TIDY_SEC
            self._attempt(self._tidy)

    def _update_info(self, **fields: object) -> None:
        with self._lock:
            self._info = self._info.model_copy(update=fields)

    @property
    def _busy_with(self) -> str:
        if self._info.stopped:
            return ""
        if self._info.missing_resource:
            return f"resting: {self._info.missing_resource}"
        first, *others = [*self._tasks] or [""]
        return f"{first}, and {len(others)} more" if others else first

    @staticmethod
    def _attempt(report: Callable[[], None]) -> str:
        try:
            report()
        except MallornError as error:
            log.warning("roll call: %s", error)
            return error.headline
        except Exception as error:
            log_survived_error("a roll call came to nothing", error)
            return f"{type(error).__name__}: {error}"[:ERROR_CHARS]
        return ""

    def report_worker(self) -> None:
        with self._database.transaction() as session:
            self._record_seen(session)
            others = Workers(session).builders(self._info.can_tune) - self.ability.builders
        self.ability = replace(self.ability, other_builders=frozenset(others))

    def _report_info(self) -> None:
        with self._database.transaction() as session:
            self._record_seen(session)

    def _record_seen(self, session: Session) -> None:
        Workers(session).record_seen(self._name, host_id(), self._info, self._busy_with)

    def report_devices(self) -> None:
        devices = self._fleet.devices()
        with self._database.transaction() as session:
            targets, rows = Targets(session), Devices(session)
            found = {text: parse_target(text) for text in {device.target for device in devices}}
            ids = {text: targets.ensure(target).id for text, target in found.items()}
            row_of: dict[str, SeenDevice] = {}
            for device in devices:
                info = device.endpoint.info.model_copy(update={"busy": device.busy})
                fields = asdict(replace(device.endpoint, info=info))
                row_of[device.endpoint.name] = SeenDevice(target_id=ids[device.target], **fields)
            rows.record_all_seen(row_of.values(), ENOUGH_SEC, BUSY_SEC)
            rows.mark_stopped(row_of, MISSED_SEC)
            reached = sorted(target.key for target in found.values())
            if reached != self._info.device_targets:  # a plan for new devices reads it
                self._update_info(device_targets=reached)
                self._record_seen(session)
            keys = {name: (name, machine_key_of(row)) for name, row in row_of.items()}
            new = {name for name, key in keys.items() if key not in self._reported_devices}
            unmeasured = rows.find_unprobed(new)
            jobs = JobsWaitingForDevice(session).one_job_per_target({row_of[name].target_id for name in new})
            self._mark_disturbed_times(session, row_of.values())
        classes = frozenset(key for _, key in keys.values())
        self.ability = replace(self.ability, devices=classes)
        self._reported_devices |= {keys[name] for name in new}
        for name in sorted(unmeasured):
            self.on_unmeasured(name)
        for job_id in jobs:
            self._request_plan(job_id)

    def _mark_disturbed_times(self, session: Session, devices: Iterable[SeenDevice]) -> None:
        """Turn times of intervals that devices call disturbed into upper bounds: once when
        the interval is new, and once when its last results are stored."""
        for device in devices:
            interval = device.info.disturbed
            is_over = interval and time.time() > interval.until + CLOCKS_SEC
            event = device.name, interval, is_over
            if interval is not None and event not in self._handled_disturbances:
                self._handled_disturbances.append(event)
                if count := Withdrawals(session).mark_disturbed(device.name, interval):
                    message = "a program disturbed device %s: %d of its times are upper bounds now"
                    log.warning(message, device.name, count)
