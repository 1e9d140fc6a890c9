"""Commands that each run one part of the service, configured by `MALLORN_*` variables."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import Annotated

import typer

from mallorn.cli.terminal.explain_error import explain_missing_package
from mallorn.core.address_checks import LAST_PORT
from mallorn.core.artifact_uris import open_store
from mallorn.core.errors import InvalidRequest, Unavailable
from mallorn.core.log_setup import set_up
from mallorn.core.queues import CONTROL, WORKER_QUEUES
from mallorn.core.settings import settings
from mallorn.stack.temporary_files import create_process_folder

HostOption = Annotated[str, typer.Option(help="Address to bind: loopback, or one private interface by name.")]


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
    """Run one worker. It imports, measures rounds, trains and finishes, one at a time."""
    queue_names = tuple(item.strip() for item in queues.split(",") if item.strip()) or WORKER_QUEUES
    unknown = sorted(set(queue_names) - set(WORKER_QUEUES))
    if unknown:
        raise InvalidRequest(f"unknown queue {unknown[0]!r}", hint=f"--queues {','.join(WORKER_QUEUES)}")
    set_up("worker", settings())
    with require_packages("worker"):
        from mallorn.db.repositories.access_control import needs_api_keys
        from mallorn.stack.run_celery import run_worker
        from mallorn.workers.app import app
        from mallorn.workers.sandbox.sandbox_support import probe_sandbox_support
    open_store(settings().artifacts)
    settings().sandbox = mode = settings().sandbox_mode(needs_api_keys(settings()))
    probe_sandbox_support(mode)  # raises if a sandbox is required and this host has none
    check_tables(settings().database_url)
    run_worker(app, queue_names, name or f"worker-{os.getpid()}")


@create_process_folder("control")
def control() -> None:
    """Run planning, sweeping and reaping, and the timer that wakes them."""
    set_up("control", settings())
    with require_packages("server"):
        from mallorn.services.control.app import app, start_periodic_task_thread
        from mallorn.stack.run_celery import run_worker
    open_store(settings().artifacts)
    check_tables(settings().database_url)
    start_periodic_task_thread()
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
