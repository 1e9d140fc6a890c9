"""The command that finds and repairs damage in a data directory, and checks a service."""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from cli.doctor_checks.findings import Finding, States, tell
from cli.host_checks import disk, look
from cli.terminal.option_groups import shared
from cli.terminal.output import Address, JsonOption, client
from mallorn.core.errors import Conflict
from mallorn.core.settings import Settings
from stack.data_directory import DataDir, DataDirInUse


@shared
def doctor(
    data: Annotated[
        Path | None, typer.Option("--data", help="Where the service keeps its data.  [MALLORN_DATA_DIR]")
    ] = None,
    backup: Annotated[
        Path | None, typer.Option("--backup", metavar="FILE", help="Copy a whole SQLite database there.")
    ] = None,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair", help="First repair what is damaged; damaged files are moved to DATA/damaged."
        ),
    ] = False,
    as_json: JsonOption = False,
    *,
    address: Address,
) -> None:
    """Check for damage: data directory, database, models, exports, cost models, leftovers, sandbox.

    If a service runs there or is named, its parts are checked, too; if one is named and there are no data
    here, only its parts. Changes nothing without --repair, for which no service may run. Exits with code 1
    if something is bad.
    """
    config = Settings() if data is None else Settings(data_dir=data.expanduser().absolute())
    fixes = _repair(config) if repair else ()
    is_elsewhere = address.url is not None and data is None and not config.data_dir.is_dir()
    checks = () if is_elsewhere else _check_directory(config, backup)
    tell(
        chain(fixes, checks, _check_running_parts(config, address)),
        as_json,
        States("bad", "warn"),
        "nothing is damaged",
    )


def _repair(config: Settings) -> Iterator[Finding]:
    """Lock the data directory and repair it. Raises Conflict while a service uses it."""
    from cli.doctor_checks.repair import repaired

    directory = DataDir(config.data_dir.absolute())
    if not directory.path.is_dir():  # the first check reports it
        return
    directory.prepare()
    try:
        with directory.locked():
            yield from repaired(config)
    except DataDirInUse as error:
        raise Conflict(error.message, hint="stop it, then   mallorn doctor --repair") from None


def _check_directory(config: Settings, backup: Path | None) -> Iterator[Finding]:
    from cli.doctor_checks import stored_data
    from db.repositories.access_control import needs_api_keys

    directory = DataDir(config.data_dir.absolute())
    yield look("directory", lambda: stored_data.rights(directory.path))
    yield look("disk", lambda: disk(directory.path))
    yield from _check_stored_data(config, backup)
    yield look("stack", lambda: stored_data.stack(directory), necessary=False)
    yield look("leftovers", lambda: stored_data.leftovers(directory), necessary=False)
    yield look("sandbox", lambda: stored_data.sandbox(config.sandbox_mode(needs_api_keys(config))))


def _check_running_parts(config: Settings, address: Address) -> Iterator[Finding]:
    """Check the parts of the service at `address`, else of the one on the data directory."""
    from cli.doctor_checks import service

    stack = DataDir(config.data_dir.absolute()).running_stack()
    if address.url is None and stack is None:
        return
    with client(*address, config.data_dir) as api:
        readiness = look("service", lambda: service.ready(api))
        yield readiness
        if readiness.ok:
            yield look("control", lambda: service.control(api))
            yield look("workers", lambda: service.workers(api))
            yield look("devices", lambda: service.devices(api), necessary=False)
            yield look("locks", lambda: service.locks(api), necessary=False)
    if address.url is None and stack is not None:
        yield look("tracker", lambda: service.tracker(stack, config.fleet_key))


def _check_stored_data(config: Settings, backup: Path | None) -> Iterator[Finding]:
    """Run the checks that need the database; stop if it or its tables are unusable."""
    from cli.doctor_checks import stored_data
    from db.session import Database

    with Database(config.database_url) as database:
        integrity = look("database", lambda: stored_data.integrity(database))
        yield integrity
        if not integrity.ok:
            return
        yield look("backups", lambda: stored_data.backups(database))
        if backup is not None:
            yield look("backup", lambda: stored_data.backed_up(database, backup))
        tables = look("tables", lambda: stored_data.tables(database))
        yield tables
        if tables.ok:
            yield look("models", lambda: stored_data.models(database, config.artifacts))
            yield look("exports", lambda: stored_data.exports(database))
            yield look("times", lambda: stored_data.times(database), necessary=False)
            yield look("cost models", lambda: stored_data.cost_models(database))
