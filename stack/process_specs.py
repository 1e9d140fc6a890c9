"""The processes of the embedded stack: their commands, environment, addresses and files."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from mallorn.core.address_checks import host_and_port, is_loopback
from mallorn.core.check_plugin_classes import ANY
from mallorn.core.fleet_key import FleetKey
from mallorn.core.host_id import HOST_FOLDER_VARIABLE, host_folder
from mallorn.core.installation import python_path
from mallorn.core.queues import IMPORT, TUNING_QUEUES
from mallorn.core.settings import Settings
from mallorn.core.targets import LOCAL, Target
from mallorn.core.virtual_devices import ANY_RECORDING
from mallorn.stack.data_directory import DataDir
from mallorn.stack.supervised_process import (
    ChildSpec,
    Probe,
    broker_answers,
    has_registered_device,
    http_answers,
    search_path,
    tracker_answers,
)
from mallorn.stack.valkey import broker_url, valkey_command

LOOPBACK = "127.0.0.1"
COORDINATOR = "coordinator"


@dataclass(frozen=True)
class StackLayout:
    """The data directory, addresses and number of workers of an embedded stack."""

    data: DataDir
    host: str
    port: int
    tracker: str  # HOST:PORT
    workers: int

    @property
    def url(self) -> str:
        # A server that binds all interfaces is reached through loopback.
        host = LOOPBACK if self.host in ("0.0.0.0", "::", "") else self.host  # noqa: S104
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    @property
    def broker_socket(self) -> Path:
        return self.data.socket_directory / "broker.sock"

    @property
    def tracker_address(self) -> tuple[str, int]:
        return host_and_port(self.tracker)


def environment(layout: StackLayout, settings: Settings) -> dict[str, str]:
    """Return the environment variables that pass settings to the stack's processes."""
    from mallorn.db.repositories.access_control import needs_api_keys

    asks_keys = needs_api_keys(settings)
    is_private = is_loopback(layout.host) and not asks_keys
    return {
        "MALLORN_DATA_DIR": str(layout.data.path),
        "MALLORN_DATABASE_URL": settings.database_url,
        "MALLORN_ARTIFACTS": settings.artifacts,
        "MALLORN_REDIS_URL": broker_url(layout.broker_socket),
        "MALLORN_TRACKER": layout.tracker,
        "MALLORN_HOST": layout.host,
        "MALLORN_PORT": str(layout.port),
        "MALLORN_PLUGINS": ",".join(settings.plugins or [ANY] * is_private),
        "MALLORN_RECORDINGS": settings.recordings or ANY_RECORDING * is_private,
        "MALLORN_SANDBOX": settings.sandbox_mode(asks_keys),
        "TMPDIR": str(layout.data.temporary_directory),
        HOST_FOLDER_VARIABLE: str(host_folder()),
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": python_path(),
        "PATH": search_path(),
    }


@dataclass(frozen=True)
class StackParts:
    layout: StackLayout
    env: Mapping[str, str]
    key: FleetKey
    main: Callable[[Sequence[str]], object]  # does what `python -m mallorn` does

    def programs(self) -> list[ChildSpec]:
        """Return the processes that run as programs, not as forks of this one."""
        socket, address = self.layout.broker_socket, self.layout.tracker_address
        tracks = partial(tracker_answers, address, self.key)
        measures = partial(has_registered_device, address, self.key)
        return [
            ChildSpec("broker", valkey_command(socket), partial(broker_answers, socket)),
            ChildSpec("tracker", mallorn_command("tracker"), tracks, env=self.env),
            # The device retries every second until the tracker answers.
            ChildSpec("device", self._device_command(LOCAL), measures, env=self.env),
        ]

    def coordinator(self) -> ChildSpec:
        """Return the process of the coordinator, which serves users."""
        ready = partial(http_answers, f"{self.layout.url}/healthz")
        return self._forked(COORDINATOR, ready, "serve")

    def loader(self) -> ChildSpec:
        """Return a process that loads bundled rows and cost models into the database."""
        return self._forked("loader", bool, "migrate")

    def celery(self) -> list[ChildSpec]:
        """Return the Celery processes: control, an importer, and the tuning workers."""
        # A finish takes minutes: imports have their own worker, so that they need not wait for it.
        importer = self._celery("importer", "worker", "--name", "importer", "--queues", IMPORT)
        tuning = ("--queues", ",".join(TUNING_QUEUES))
        tuners = [
            self._celery(f"worker-{i + 1}", "worker", "--name", f"tuner{i + 1}", *tuning)
            for i in range(self.layout.workers)
        ]
        return [self._celery("control", "control"), importer, *tuners]

    def device_for(self, target: Target) -> ChildSpec:
        """Return the process of a further device, for a target that jobs wait for."""
        return ChildSpec(
            f"device-{target.key}",
            self._device_command(target.text),
            partial(has_registered_device, self.layout.tracker_address, self.key, target),
            needs=("tracker",),
            env=self.env,
            essential=False,
        )

    def _device_command(self, target: str) -> tuple[str, ...]:
        log = str(self.layout.data.logs / "executions.log")
        return mallorn_command("device", "--target", target, "--log", log)

    def _celery(self, name: str, *words: str) -> ChildSpec:
        ready = self.layout.data.socket_directory / f"{name}.ready"
        return replace(self._forked(name, ready.exists, *words), ready_file=ready)

    def _forked(self, name: str, ready: Probe, *words: str) -> ChildSpec:
        run = partial(self.main, words)
        return ChildSpec(name, mallorn_command(*words), ready, needs=("broker",), env=self.env, main=run)


def mallorn_command(*words: str) -> tuple[str, ...]:
    """Return a `mallorn` command line; -P stops imports from the current directory."""
    return (sys.executable, "-P", "-m", "mallorn", *words)
