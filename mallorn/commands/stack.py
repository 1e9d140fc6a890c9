"""The embedded stack: which parts it has, and the command that runs them until stopped."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from mallorn.commands.child import ChildSpec
from mallorn.commands.datadir import DataDir, StackInfo
from mallorn.commands.environ import python_path, search_path
from mallorn.commands.on_demand import OnDemand, Scout
from mallorn.commands.output import print_note
from mallorn.commands.ports import claim_port, free_port
from mallorn.commands.probes import device_registered, file_exists, http_ok, redis_answers, tracker_answers
from mallorn.commands.supervisor import Supervisor
from mallorn.core.binding import check_binding
from mallorn.core.errors import InvalidRequest, Unavailable
from mallorn.core.queues import IMPORT, TUNING_QUEUES
from mallorn.core.settings import LAST_PORT, Settings
from mallorn.core.targets import LOCAL, Target

LOOPBACK = "127.0.0.1"
COORDINATOR = "coordinator"
FRESH_SEC = 15.0  # a device that answered before the last start is none yet


@dataclass(frozen=True)
class Plan:
    """Where everything of one embedded stack lies and listens."""

    data: DataDir
    host: str
    port: int
    tracker: str  # HOST:PORT
    workers: int

    @property
    def url(self) -> str:
        # What binds every interface is reached through loopback.
        host = LOOPBACK if self.host in ("0.0.0.0", "::", "") else self.host  # noqa: S104
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    @property
    def socket(self) -> Path:
        return self.data.runtime / "broker.sock"

    @property
    def tracker_address(self) -> tuple[str, int]:
        host, _, port = self.tracker.rpartition(":")
        return host, int(port)


def up(
    port: Annotated[
        int, typer.Option(min=0, max=LAST_PORT, help="Port of the API; 0 takes a free one.")
    ] = 8000,
    host: Annotated[
        str, typer.Option(help="Address of the API; others than loopback need MALLORN_API_KEYS.")
    ] = LOOPBACK,
    data: Annotated[
        Path | None, typer.Option(help="Where database, models and logs are kept.  [MALLORN_DATA_DIR]")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Worker slots that tune; one more imports.")] = 1,
    tracker: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            help="Where devices of other machines register: one private interface of this one. "
            "Default: a free port on loopback.",
        ),
    ] = "",
    until_unused: Annotated[bool, typer.Option("--until-unused", hidden=True)] = False,
) -> None:
    """Run the whole service on this machine, until stopped."""
    known = Settings() if data is None else Settings(data_dir=data.expanduser().absolute())
    check_binding(host, bool(known.api_keys))
    directory = DataDir(known.data_dir.absolute())
    directory.prepare()
    with directory.locked() as announce:
        api_port = claim_port(host, port)
        plan = Plan(directory, host, api_port, _tracker(tracker, api_port), workers)
        announce(plan.url)
        _run(plan, known, until_unused)


def _run(plan: Plan, known: Settings, until_unused: bool) -> None:
    from mallorn.commands.valkey import socket_url

    print_note(f"data in {plan.data.path}, logs in {plan.data.logs}")
    parts = Parts(plan, environment(plan, known))
    says = (partial(_say_ready, plan), _say_restart, _say_given_up)
    supervisor = Supervisor(parts.all(), plan.data.logs, *says)
    with supervisor.running():
        _migrate(known.database_url)
        if not supervisor.start():
            print_note("stopped before everything was ready")
            return
        info = StackInfo(plan.url, os.getpid(), socket_url(plan.socket), plan.tracker, until_unused)
        with plan.data.published(info):
            ready = Ready(plan, known.database_url)
            with _devices_on_demand(plan, known, parts, supervisor) as adjust:
                supervisor.watch(
                    lambda: ready.tell() or adjust() or (until_unused and not plan.data.has_users())
                )
            print_note("stopping")


class Ready:
    """Says that everything is ready: when a worker has told of the device, for only then `local` is known."""

    def __init__(self, plan: Plan, database_url: str) -> None:
        self._plan = plan
        self._database_url = database_url
        self._told = False

    def tell(self) -> bool:
        """Called again and again; never says that it is enough."""
        if not self._told and self._device_is_known():
            print_note(f"everything is ready; try   {_try_it(self._plan)}")
            self._told = True
        return False

    def _device_is_known(self) -> bool:
        from db.repositories.devices import Devices
        from db.session import Database

        database = Database(self._database_url)
        try:
            with database.session() as session:
                return bool(Devices(session).list(fresh_sec=FRESH_SEC))
        except Unavailable:  # the parts say so in their logs, and are started again
            return False
        finally:
            database.dispose()


def _tracker(wanted: str, api_port: int) -> str:
    if not wanted:
        return f"{LOOPBACK}:{free_port(besides=(api_port,))}"
    host, colon, port = wanted.rpartition(":")
    if not colon or not host or not port.isdecimal():
        raise InvalidRequest(f"{wanted!r} is not HOST:PORT", hint="--tracker 10.0.0.2:9190")
    return f"{host}:{claim_port(host, int(port))}"


@contextmanager
def _devices_on_demand(
    plan: Plan, known: Settings, parts: "Parts", supervisor: Supervisor
) -> Iterator[Callable[[], bool]]:
    """What to call again and again, and never says that it is enough."""
    scout = Scout(known.model_copy(update={"tracker": plan.tracker}))
    devices = OnDemand(supervisor, parts.device_for, print_note)

    def adjust() -> bool:
        devices.adjust(scout.wanted)
        return False

    scout.start()
    try:
        yield adjust
    finally:
        scout.stop()


def _try_it(plan: Plan) -> str:
    prefix = "" if plan.url == "http://127.0.0.1:8000" else f"MALLORN_URL={plan.url} "
    return f"{prefix}mallorn tune model.onnx"


def _say_ready(plan: Plan, name: str) -> None:
    """The page is there long before the slowest part, which is a device."""
    if name == COORDINATOR:
        print_note(f"Mallorn is up at {plan.url}   (stop it with Ctrl-C)")
    print_note(f"  {name} is ready")


def _say_restart(name: str, how: str) -> None:
    print_note(f"  {name} {how}; starting it again")


def _say_given_up(name: str, how: str) -> None:
    print_note(f"  {name} {how}; it is given up")


def _migrate(database_url: str) -> None:
    from db.migrate import upgrade

    upgrade(database_url)


def environment(plan: Plan, known: Settings) -> dict[str, str]:
    """What the parts read; a child of `mallorn up` sees the same settings as one started by hand would."""
    from mallorn.commands.valkey import socket_url

    return {
        "MALLORN_DATA_DIR": str(plan.data.path),
        "MALLORN_DATABASE_URL": known.database_url,
        "MALLORN_ARTIFACTS": known.artifacts,
        "MALLORN_REDIS_URL": socket_url(plan.socket),
        "MALLORN_TRACKER": plan.tracker,
        "MALLORN_HOST": plan.host,
        "MALLORN_PORT": str(plan.port),
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": python_path(),
        "PATH": search_path(),
    }


@dataclass(frozen=True)
class Parts:
    """The children of an embedded stack."""

    plan: Plan
    env: Mapping[str, str]

    def all(self) -> list[ChildSpec]:
        """Every part, in the order in which they are named to the user."""
        # A finish takes minutes: models are imported beside it, by a slot of their own.
        importer = self._celery("importer", "worker", "--name", "importer", "--queues", IMPORT)
        tuning = ("--queues", ",".join(TUNING_QUEUES))
        slots = [
            self._celery(f"worker-{i + 1}", "worker", "--name", f"slot{i + 1}", *tuning)
            for i in range(self.plan.workers)
        ]
        return [
            self._broker(),
            self._tracker(),
            self._coordinator(),
            self._celery("control", "control"),
            self._celery("beat", "control", "--beat"),
            self._device(),
            importer,
            *slots,
        ]

    def _broker(self) -> ChildSpec:
        from mallorn.commands.valkey import valkey_command

        return ChildSpec("broker", valkey_command(self.plan.socket), redis_answers(self.plan.socket))

    def _tracker(self) -> ChildSpec:
        probe = tracker_answers(*self.plan.tracker_address)
        return ChildSpec("tracker", mallorn("tracker"), probe, needs=("broker",), env=self.env)

    def _coordinator(self) -> ChildSpec:
        return ChildSpec(
            COORDINATOR,
            mallorn("serve"),
            http_ok(f"{self.plan.url}/healthz"),
            needs=("broker",),
            env=self.env,
        )

    def _device(self) -> ChildSpec:
        probe = device_registered(*self.plan.tracker_address)
        return ChildSpec("device", self._device_command(LOCAL), probe, needs=("tracker",), env=self.env)

    def device_for(self, target: Target) -> ChildSpec:
        """One more device, for a target that jobs ask for."""
        return ChildSpec(
            f"device-{target.key}",
            self._device_command(target.text),
            device_registered(*self.plan.tracker_address, target),
            needs=("tracker",),
            env=self.env,
            essential=False,
        )

    def _device_command(self, target: str) -> tuple[str, ...]:
        log = str(self.plan.data.logs / "executions.log")
        return mallorn("device", "--target", target, "--log", log)

    def _celery(self, name: str, *words: str) -> ChildSpec:
        ready = self.plan.data.runtime / f"{name}.ready"
        return ChildSpec(
            name, mallorn(*words), file_exists(ready), needs=("broker",), env=self.env, ready_file=ready
        )


def mallorn(*words: str) -> tuple[str, ...]:
    """The command line of one of our own commands; -P keeps the user's directory off the module path."""
    return (sys.executable, "-P", "-m", "mallorn", *words)
