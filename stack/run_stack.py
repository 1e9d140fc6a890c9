"""Runs the embedded stack until it is stopped, and reports the state of its parts to the user."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Final

from mallorn.core.settings import Settings
from stack.data_directory import StackInfo
from stack.devices_on_demand import DeviceScout, OnDemand
from stack.stack_parts import COORDINATOR, StackLayout, StackParts, environment
from stack.supervised_process import SupervisedChild
from stack.supervisor import PartFailed, Supervisor
from stack.valkey import end_waits, socket_url

Say = Callable[[str], None]
Main = Callable[[Sequence[str]], object]
#: Modules that forks of this interpreter share. None of them starts a thread (numpy would), makes a
#: Celery app, or reads settings.
COORDINATOR_MODULE: Final = "services.coordinator.serve"
CELERY_MODULES: Final = (
    "stack.run_celery",
    "celery.bin.celery",
    "celery.apps.worker",
    "celery.worker.consumer",
)


def run(layout: StackLayout, known: Settings, until_unused: bool, say: Say, main: Main) -> None:
    """Start all parts and keep them running until a signal or, if `until_unused`, the last user's exit.

    Most parts are forks of this process, in which `main` runs a command. The stack is published once the
    coordinator answers, before the other parts are ready.
    Raises NoSandbox if a full sandbox is required and this host lacks it; PartFailed if a part fails.
    """
    from db.bundled.load_bundled import has_bundled
    from workers.sandbox.sandbox_support import reached

    env = environment(layout, known)
    reached(env["MALLORN_SANDBOX"])  # warns here, and not in each worker's log
    say(f"data in {layout.data.path}, logs in {layout.data.logs}")
    key = known.model_copy(update={"data_dir": layout.data.path}).fleet_key
    parts = StackParts(layout, env, key, main)
    announcer = Announcer(layout, say)
    supervisor = Supervisor(
        parts.programs(),
        layout.data.logs,
        announcer.ready,
        announcer.restart,
        announcer.given_up,
        while_ending=partial(end_waits, layout.socket),
    )

    def is_unused() -> bool:
        return until_unused and not layout.data.has_users()

    with supervisor.running():
        import_module(COORDINATOR_MODULE)
        _prepare_database(known)
        supervisor.add(parts.coordinator())
        supervisor.watch(lambda: supervisor.are_ready((COORDINATOR,)) or is_unused())
        info = StackInfo(layout.url, os.getpid(), socket_url(layout.socket), layout.tracker, until_unused)
        with layout.data.published(info):
            loader = SupervisedChild(parts.loader(), layout.data.logs / "loader.log")
            if known.shipped and not has_bundled(known.database_url):
                loader.start()
            for module in CELERY_MODULES:
                import_module(module)
            supervisor.watch(lambda: not loader.running or is_unused())
            if loader.exit_code:
                raise PartFailed("\n".join(loader.last_lines()), hint=f"less {loader.log}")
            for spec in parts.celery():
                supervisor.add(spec)
            scout = DeviceScout(known.model_copy(update={"tracker": layout.tracker}))
            if supervisor.start(is_unused):
                with scout.looking():
                    devices = OnDemand(supervisor, parts.device_for, say)

                    def is_over() -> bool:
                        announcer.everything(scout.has_device)
                        devices.adjust(scout.wanted)
                        return is_unused()

                    supervisor.watch(is_over)
        say("stopping")


def _prepare_database(config: Settings) -> None:
    """Migrate the database, and mark all devices as stopped, since their hosts may have changed."""
    from db.backups import take_before_migrations
    from db.migrate import upgrade
    from db.repositories.devices import Devices
    from db.session import Database

    take_before_migrations(config.database_url, config.keep_backups)
    upgrade(config.database_url)
    with Database(config.database_url) as database, database.transaction() as session:
        Devices(session).mark_stopped((), 0.0)


@dataclass
class Announcer:
    """Tells the user about the state of the parts."""

    layout: StackLayout
    say: Say
    _is_all_told: bool = False

    def ready(self, name: str) -> None:
        """Say that a part is ready; for the coordinator, also the address of the page."""
        if name == COORDINATOR:
            self.say(f"Mallorn is up at {self.layout.url}   (stop it with Ctrl-C)")
        self.say(f"  {name} is ready")

    def everything(self, has_device: bool) -> None:
        """Say once that everything is ready, which is when a worker has reported the local device."""
        if has_device and not self._is_all_told:
            prefix = "" if self.layout.url == "http://127.0.0.1:8000" else f"MALLORN_URL={self.layout.url} "
            self.say(f"everything is ready; try   {prefix}mallorn tune model.onnx")
            self._is_all_told = True

    def restart(self, name: str, how: str) -> None:
        self.say(f"  {name} {how}; starting it again")

    def given_up(self, name: str, how: str) -> None:
        self.say(f"  {name} {how}; it is given up")
