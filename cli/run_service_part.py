"""Commands that each run one part of the service, configured by `MALLORN_*` variables, or a device."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import typer

from mallorn.cli.terminal.explain_error import explain_missing_package
from mallorn.cli.terminal.output import print_note
from mallorn.core.address_checks import LAST_PORT, is_loopback, is_on_private_network
from mallorn.core.artifact_uris import open_store
from mallorn.core.errors import InvalidRequest, Unavailable
from mallorn.core.log_setup import set_up
from mallorn.core.queues import CONTROL, WORKER_QUEUES
from mallorn.core.settings import SandboxMode, Settings, settings
from mallorn.core.targets import LOCAL, kind_of_word, parse_target
from mallorn.stack.supervised_process import DieWithParent
from mallorn.stack.temporary_files import create_process_folder

if TYPE_CHECKING:
    from mallorn.workers.device.device_kind import Accelerator

HostOption = Annotated[str, typer.Option(help="Address to bind: loopback, or one private interface by name.")]
_PR_SET_DUMPABLE: Final = 4
PORTS: Final = 100
LOCAL_WORDS: Final = (LOCAL, "auto")


@create_process_folder("coordinator")
def serve(
    host: Annotated[str | None, typer.Option(help="Address to bind. [MALLORN_HOST]")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=LAST_PORT, help="Port to bind. [MALLORN_PORT]")
    ] = None,
) -> None:
    """Run the coordinator: the HTTP API and the page."""
    set_up("coordinator", settings())
    with require_packages("server"):
        from mallorn.services.coordinator.serve import serve as serve_coordinator
    end_on_sigterm()  # uvicorn raises the signal once more when it has shut down
    options = {"host": host, "port": port}
    serve_coordinator(settings().model_copy(update={k: v for k, v in options.items() if v is not None}))


@create_process_folder("worker")
def worker(
    queues: Annotated[str, typer.Option(help="Comma-separated; all of them by default.")] = "",
    name: Annotated[str, typer.Option(help="Name of the worker, unique on its host.")] = "",
) -> None:
    """Run one worker. It imports, measures rounds, trains and finishes, as much at a time
    as keeps its builders busy."""
    queue_names = tuple(item.strip() for item in queues.split(",") if item.strip()) or WORKER_QUEUES
    unknown = sorted(set(queue_names) - set(WORKER_QUEUES))
    if unknown:
        raise InvalidRequest(f"unknown queue {unknown[0]!r}", hint=f"--queues {','.join(WORKER_QUEUES)}")
    set_up("worker", settings())
    with require_packages("worker"):
        from mallorn.db.repositories.access_control import needs_api_keys
        from mallorn.stack.run_celery import run_worker
        from mallorn.workers.app import THREADS, app, queues_to_consume
        from mallorn.workers.sandbox.sandbox_support import probe_sandbox_support
    open_store(settings().artifacts)
    settings().sandbox = mode = settings().sandbox_mode(needs_api_keys(settings()))
    probe_sandbox_support(mode)  # raises if a sandbox is required and this host has none
    check_tables(settings().database_url)
    run_worker(app, queues_to_consume(queue_names), name or f"worker-{os.getpid()}", THREADS)


@create_process_folder("control")
def control() -> None:
    """Run planning, sweeping and reaping, and the timer that wakes them."""
    set_up("control", settings())
    with require_packages("server"):
        from mallorn.services.control.app import app, send_periodic_tasks
        from mallorn.stack.run_celery import run_worker
    open_store(settings().artifacts)
    check_tables(settings().database_url)
    threading.Thread(target=send_periodic_tasks, name="timer", daemon=True).start()
    run_worker(app, (CONTROL,), f"control-{os.getpid()}")


@create_process_folder("tracker")
def tracker(
    host: HostOption = "",
    port: Annotated[
        int | None, typer.Option(min=0, max=LAST_PORT, help="Port to bind. [MALLORN_TRACKER]")
    ] = None,
) -> None:
    """Run TVM's RPC tracker, where devices register."""
    os.environ["TVM_USE_RUNTIME_LIB"] = "1"
    with require_packages("worker"):
        from mallorn.workers.device.serve_tracker import serve_tracker
    known_host, known_port = settings().tracker_address
    set_up("tracker", settings())
    end_on_sigterm()
    serve_tracker(host or known_host, known_port if port is None else port, key=settings().fleet_key)


def migrate() -> None:
    """Bring the database to this version's tables."""
    with require_packages("server"):
        from mallorn.db.backups import take_before_migrations
        from mallorn.db.bundled.load_bundled import load_bundled_models
        from mallorn.db.migrate import upgrade
    if backup := take_before_migrations(settings().database_url, settings().keep_backups):
        typer.echo(f"The database as it was is kept in {backup}.", err=True)
    upgrade(settings().database_url)
    if settings().shipped and (rows := load_bundled_models(settings().database_url)):
        typer.echo(f"{rows:,} bundled measurements, and the bases trained on them, were added.", err=True)
    typer.echo("The database is up to date.", err=True)


def check_tables(url: str) -> None:
    """Raise Conflict if the tables have another version; ignore a database that is down."""
    from mallorn.db.migrate import check_table_version
    from mallorn.db.session import Database

    with Database(url) as database, suppress(Unavailable):
        check_table_version(database)


@contextmanager
def require_packages(extra: str, *libraries: str) -> Iterator[None]:
    """Raise MissingPackage, with the pip command, if an import or a library is missing."""
    try:
        for library in libraries:
            if find_spec(library) is None:
                raise ModuleNotFoundError(name=library)
        yield
    except ModuleNotFoundError as error:
        if (package_error := explain_missing_package(error, extra)) is None:
            raise
        raise package_error from None


def end_on_sigterm() -> None:
    """Raise SystemExit on SIGTERM, so that clean-up code runs."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))


def device(
    target: Annotated[
        str, typer.Option(help="`local` is this machine and `cuda` its GPU; or a JSON target.")
    ] = "local",
    tracker: Annotated[str, typer.Option(help="HOST:PORT of the tracker.  [MALLORN_TRACKER]")] = "",
    host: Annotated[
        str, typer.Option(help="Address to bind: loopback, or one private interface.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=LAST_PORT - PORTS, help="First port to try; the next hundred follow.")
    ] = 9091,
    name: Annotated[str, typer.Option(help="Name of the device; default: host and target.")] = "",
    gpu: Annotated[
        str, typer.Option(help="Index or UUID of the target's GPU; default: a device for each one.")
    ] = "",
    log: Annotated[Path | None, typer.Option(help="File to which every execution appends a line.")] = None,
) -> None:
    """Measure candidates on this machine. Needs only TVM's runtime library."""
    # TVM reads this once, when it is imported.
    os.environ["TVM_USE_RUNTIME_LIB"] = "1"
    config = Settings(tracker=tracker) if tracker else settings()
    with require_packages("worker"):
        from mallorn.workers.device.device_kind import DeviceKind
        from mallorn.workers.device.key_agent import isolate_fleet_key
        from mallorn.workers.device.serve_device import serve_device
        from mallorn.workers.device.target_support import check_executable, resolve_target
    is_local = target in LOCAL_WORDS
    hardware = None if is_local else kind_of_word(target) or parse_target(target).hardware
    kind = DeviceKind() if hardware is None else hardware.part(DeviceKind)
    if gpu and (hardware is None or hardware.runs_on_cores):
        raise InvalidRequest(f"{target} is not for GPUs", hint="leave out --gpu")
    accelerators = kind.accelerators()
    if len(accelerators) > 1 and not gpu:
        serve_each(accelerators, name)
    key = isolate_fleet_key(lambda: config.fleet_key)
    accelerator = kind.choose(accelerators, gpu)
    if accelerator is not None:
        kind.show_only(accelerator)
    device_target = resolve_target(LOCAL if is_local else target)
    if not is_local:
        check_executable(device_target)
    device_name = name or "-".join(
        (
            os.uname().nodename,
            device_target.key,
            *([f"gpu{accelerator.index}"] if accelerator is not None else []),
        )
    )
    set_up("device", config)
    print_note(f"device {device_name} measures for {device_target}")
    ports = range(port, port + PORTS)
    # After `isolate_fleet_key`, which may restart this program and so lose the lock.
    with create_process_folder("device"):
        serve_device(
            config.tracker_address,
            device_target,
            host,
            ports,
            name=device_name,
            accelerator=accelerator,
            is_local=is_local,
            log_path=log.absolute() if log else None,
            sandbox=choose_sandbox_mode(config, host),
            key=key,
        )


def choose_sandbox_mode(config: Settings, host: str) -> SandboxMode:
    """Return the mode set, else `require` if callers of the service on this machine's
    database need keys, `require-files` if hosts of a private network reach the device, and
    `require` if others do. Raises InvalidRequest if `host` is public (ADR 0131)."""
    from mallorn.workers.device.private_sockets import private_address

    needs_keys = not is_loopback(host) and not is_on_private_network(private_address(host))
    if not needs_keys and not config.sandbox and find_spec("sqlalchemy") is not None:
        from mallorn.db.repositories.access_control import has_api_keys

        needs_keys = has_api_keys(config.database_url)
    mode = config.sandbox_mode(needs_keys)
    if config.sandbox or mode == "require" or is_loopback(host):
        return mode
    return "require-files"


def serve_each(gpus: "Sequence[Accelerator]", name: str) -> NoReturn:
    """Start this program once per GPU, to end with it; exit with the highest exit code."""
    # The environment holds the fleet's key, which sessions of this user must not read.
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0)
    devices: dict[int, Accelerator] = {}
    for gpu in gpus:
        name_option = ("--name", f"{name}-gpu{gpu.index}") if name else ()
        command = [sys.executable, *sys.orig_argv[1:], "--gpu", gpu.uuid, *name_option]
        devices[subprocess.Popen(command, preexec_fn=DieWithParent(signal.SIGTERM)).pid] = gpu
    codes = []
    while devices:
        pid, status = os.wait()
        gpu = devices.pop(pid)
        codes.append(abs(os.waitstatus_to_exitcode(status)))
        print_note(f"the device of GPU {gpu.index} ({gpu.name}) ended with exit code {codes[-1]}")
    raise typer.Exit(max(codes))
