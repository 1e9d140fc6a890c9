"""Runs the embedded stack until it is stopped, and says how that goes."""

import os
from collections.abc import Callable
from dataclasses import dataclass

from mallorn.core.settings import Settings
from stack.data_directory import StackInfo
from stack.devices_on_demand import DeviceScout, OnDemand
from stack.stack_parts import COORDINATOR, StackLayout, StackParts, environment
from stack.supervisor import Supervisor
from stack.valkey import socket_url

Say = Callable[[str], None]


def run(layout: StackLayout, known: Settings, until_unused: bool, say: Say) -> None:
    """Start every part, keep them running, and end them all when asked to, or when nobody uses them.

    Raises NoSandbox where walls are required and this host has not all of them.
    """
    from db.backups import take_before_migrations
    from db.bundled.load_bundled import bring_along
    from db.migrate import upgrade
    from db.repositories.devices import Devices
    from db.session import Database
    from workers.sandbox.sandbox_support import reached

    env = environment(layout, known)
    reached(env["MALLORN_SANDBOX"])  # said here and not by each worker in its log
    say(f"data in {layout.data.path}, logs in {layout.data.logs}")
    key = known.model_copy(update={"data_dir": layout.data.path}).fleet_key
    parts = StackParts(layout, env, key)
    told = Announcer(layout, say)
    supervisor = Supervisor(parts.all(), layout.data.logs, told.ready, told.restart, told.given_up)
    with supervisor.running():
        take_before_migrations(known.database_url, known.keep_backups)
        upgrade(known.database_url)
        if known.shipped:
            bring_along(known.database_url)
        # No device answers before it has described itself anew: its host may have changed.
        with Database(known.database_url) as database, database.transaction() as session:
            Devices(session).missed((), 0.0)
        if not supervisor.start():
            say("stopped before everything was ready")
            return
        info = StackInfo(layout.url, os.getpid(), socket_url(layout.socket), layout.tracker, until_unused)
        scout = DeviceScout(known.model_copy(update={"tracker": layout.tracker}))
        with layout.data.published(info), scout.looking():
            devices = OnDemand(supervisor, parts.device_for, say)

            def is_over() -> bool:
                told.everything(scout.has_device)
                devices.adjust(scout.wanted)
                return until_unused and not layout.data.has_users()

            supervisor.watch(is_over)
        say("stopping")


@dataclass
class Announcer:
    """What the user is told of the parts."""

    layout: StackLayout
    say: Say
    _is_all_told: bool = False

    def ready(self, name: str) -> None:
        """Name a part that is ready, and with the coordinator the address of the page."""
        if name == COORDINATOR:
            self.say(f"Mallorn is up at {self.layout.url}   (stop it with Ctrl-C)")
        self.say(f"  {name} is ready")

    def everything(self, has_device: bool) -> None:
        """Say once that all is ready: `local` is known when a worker has reported the device."""
        if has_device and not self._is_all_told:
            prefix = "" if self.layout.url == "http://127.0.0.1:8000" else f"MALLORN_URL={self.layout.url} "
            self.say(f"everything is ready; try   {prefix}mallorn tune model.onnx")
            self._is_all_told = True

    def restart(self, name: str, how: str) -> None:
        self.say(f"  {name} {how}; starting it again")

    def given_up(self, name: str, how: str) -> None:
        self.say(f"  {name} {how}; it is given up")
