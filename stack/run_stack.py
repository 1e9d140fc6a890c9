"""Runs the embedded stack until it is stopped; starts devices that waiting jobs need."""

import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Final, Self

from mallorn.core.device_wait_hint import ServiceAddress, describe_waiting
from mallorn.core.errors import MallornError
from mallorn.core.host_id import host_id
from mallorn.core.settings import Settings
from mallorn.core.targets import Target
from mallorn.stack.data_directory import StackInfo
from mallorn.stack.process_specs import COORDINATOR, StackLayout, StackParts, environment
from mallorn.stack.supervised_process import ChildSpec, SupervisedChild
from mallorn.stack.supervisor import PartFailed, Supervisor
from mallorn.stack.valkey import broker_url, unblock_waiting_clients

log = logging.getLogger(__name__)

LOOK_SEC: Final = 1.0
FRESH_SEC: Final = 15.0  # a device that last answered longer ago does not count
UNUSED_SEC: Final = 60.0  # how long a device is kept after its last job, for a next one
WhyNot = Callable[[Target], str]
Say = Callable[[str], None]
Main = Callable[[Sequence[str]], object]
#: Modules that forks of this interpreter share. None of them starts a thread (numpy would),
#: makes a Celery app, or reads settings.
COORDINATOR_MODULE: Final = "mallorn.services.coordinator.serve"
CELERY_MODULES: Final = (
    "mallorn.stack.run_celery",
    "celery.bin.celery",
    "celery.apps.worker",
    "celery.worker.consumer",
)


class DeviceDemand:
    """Thread that finds the targets for which waiting jobs need a device on this machine.

    It also stores, in the jobs whose target this machine cannot run, why they wait.
    """

    def __init__(self, settings: Settings, why_not: WhyNot | None = None) -> None:
        from mallorn.db.session import Database
        from mallorn.workers.device.target_support import find_unsupported_reason as ask_this_host
        from mallorn.workers.measure.tracked_devices import Fleet

        self.targets: frozenset[Target] = frozenset()
        self.has_device = False  # whether a worker has reported a device that answers
        self._settings = settings
        self._database = Database(settings.database_url)
        self._fleet = Fleet(settings)
        self._why_not = why_not or ask_this_host
        self._refusals: dict[Target, str] = {}
        self._used_sec: dict[Target, float] = {}
        self._own: set[str] = set()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._update_repeatedly, name="device-demand", daemon=True)

    @contextmanager
    def update_in_background(self) -> Iterator[Self]:
        """Run the thread while the block lasts; do not wait for its last check to end."""
        self._thread.start()
        try:
            yield self
        finally:
            self._stopped.set()

    def update_targets(self) -> None:
        """Update `targets` and why jobs wait. Raises Unavailable without SQL or tracker."""
        from mallorn.db.repositories.devices import Devices
        from mallorn.db.repositories.jobs import JobsWaitingForDevice

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
        with self._database.session() as session:
            awaited = [Target(text) for text in JobsWaitingForDevice(session).targets()]

        now_sec = time.monotonic()
        for target in awaited:
            is_used = target in self.targets
            if target.virtual_device or (target.text in served and not is_used):
                continue
            if not is_used and target not in self._refusals:
                self._refusals[target] = self._why_not(target)
            if not is_used and (refusal := self._refusals[target]):
                waiting = describe_waiting(target.text, ServiceAddress.of(self._settings), refusal)
                with self._database.transaction() as session:
                    JobsWaitingForDevice(session).set_waiting(target.text, waiting)
            else:
                self._used_sec[target] = now_sec
        self._used_sec = {target: t for target, t in self._used_sec.items() if now_sec - t < UNUSED_SEC}
        self.targets = frozenset(self._used_sec)

    def _update_repeatedly(self) -> None:
        while not self._stopped.wait(LOOK_SEC):
            try:
                self.update_targets()
            except MallornError as error:
                log.warning("devices on demand: %s", error)


@dataclass
class DevicesOnDemand:
    """Makes the supervisor start and stop devices for the targets that need one."""

    supervisor: Supervisor
    spec_of: Callable[[Target], ChildSpec]
    say: Callable[[str], None]
    _running: dict[Target, str] = field(default_factory=dict)

    def start_and_stop_devices(self, targets: Collection[Target]) -> None:
        """Start and stop devices to match these targets; called repeatedly."""
        for target in set(targets) - self._running.keys():
            self.say(f"  starting a device for {target}")
            spec = self.spec_of(target)
            self._running[target] = spec.name
            self.supervisor.add(spec)
        for target in self._running.keys() - set(targets):
            self.say(f"  the device for {target} is not needed any more")
            self.supervisor.remove(self._running.pop(target))


def run_stack(layout: StackLayout, settings: Settings, until_unused: bool, say: Say, main: Main) -> None:
    """Start all processes; run until a signal or, if `until_unused`, until no user is left.

    Most are forks of this process, in which `main` runs a command. `stack.json` is written
    once the coordinator answers, before other processes are ready. Raises NoSandbox if this
    host lacks a required full sandbox, PartFailed if a process fails.
    """
    from mallorn.db.backups import take_before_migrations
    from mallorn.db.bundled.load_bundled import has_bundled_models
    from mallorn.db.migrate import upgrade
    from mallorn.db.repositories.devices import Devices
    from mallorn.db.session import Database
    from mallorn.workers.sandbox.sandbox_support import probe_sandbox_support

    env = environment(layout, settings)
    probe_sandbox_support(env["MALLORN_SANDBOX"])  # warns here, and not in each worker's log
    say(f"data in {layout.data.path}, logs in {layout.data.logs}")
    key = settings.model_copy(update={"data_dir": layout.data.path}).fleet_key
    parts = StackParts(layout, env, key, main)
    announcer = Announcer(layout, say)
    supervisor = Supervisor(
        parts.programs(),
        layout.data.logs,
        on_ready=announcer.announce_ready,
        on_restart=lambda name, cause: say(f"  {name} {cause}; starting it again"),
        on_give_up=lambda name, problem: say(f"  {name} {problem}; it is given up"),
        while_ending=partial(unblock_waiting_clients, layout.broker_socket),
    )

    def is_unused() -> bool:
        return until_unused and not layout.data.has_users()

    with supervisor.run_children():
        import_module(COORDINATOR_MODULE)
        take_before_migrations(settings.database_url, settings.keep_backups)
        upgrade(settings.database_url)
        # The hosts of devices may have changed since the last run.
        with Database(settings.database_url) as database, database.transaction() as session:
            Devices(session).mark_stopped((), 0.0)
        supervisor.add(parts.coordinator())
        supervisor.watch_children(lambda: supervisor.are_ready((COORDINATOR,)) or is_unused())
        broker = broker_url(layout.broker_socket)
        info = StackInfo(layout.url, os.getpid(), broker, layout.tracker, until_unused)
        with layout.data.publish_stack_info(info):
            loader = SupervisedChild(parts.loader(), layout.data.logs / "loader.log")
            if settings.shipped and not has_bundled_models(settings.database_url):
                loader.start()
            for module in CELERY_MODULES:
                import_module(module)
            supervisor.watch_children(lambda: not loader.is_running or is_unused())
            if loader.exit_code:
                raise PartFailed("\n".join(loader.last_lines()), hint=f"less {loader.log}")
            for spec in parts.celery():
                supervisor.add(spec)
            demand = DeviceDemand(settings.model_copy(update={"tracker": layout.tracker}))
            if supervisor.start_children(is_unused):
                with demand.update_in_background():
                    devices = DevicesOnDemand(supervisor, parts.device_for, say)

                    def must_stop() -> bool:
                        announcer.announce_all_ready(demand.has_device)
                        devices.start_and_stop_devices(demand.targets)
                        return is_unused()

                    supervisor.watch_children(must_stop)
        say("stopping")


@dataclass
class Announcer:
    """Tells the user which processes of the stack are ready."""

    layout: StackLayout
    say: Say
    _is_all_told: bool = False

    def announce_ready(self, name: str) -> None:
        """Say that a process is ready; for the coordinator, also the address of the page."""
        if name == COORDINATOR:
            self.say(f"Mallorn is up at {self.layout.url}   (stop it with Ctrl-C)")
        self.say(f"  {name} is ready")

    def announce_all_ready(self, has_device: bool) -> None:
        """Say once that all is ready: a worker must have reported the local device."""
        if has_device and not self._is_all_told:
            prefix = "" if self.layout.url == "http://127.0.0.1:8000" else f"MALLORN_URL={self.layout.url} "
            self.say(f"everything is ready; try   {prefix}mallorn tune model.onnx")
            self._is_all_told = True
