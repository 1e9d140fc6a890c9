"""The command that finds and repairs damage in a data directory, and checks a service."""

from collections.abc import Iterator
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from mallorn.cli import host_checks
from mallorn.cli.doctor_checks.findings import Finding, print_findings
from mallorn.cli.host_checks import check_free_space, check_linker, check_shared_libraries, run_check
from mallorn.cli.terminal.output import Address, JsonOption, client
from mallorn.core.errors import Conflict
from mallorn.core.settings import Settings
from mallorn.stack.data_directory import DataDir, DataDirInUse


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
    """Check for damage: data directory, compiler, shared libraries, database, models, exports, sandbox.

    If a service runs there or is named, its parts are checked, too; if one is named and
    there are no data here, only its parts. Changes nothing without --repair, for which no
    service may run. Exits with code 9 if something is bad.
    """
    config = Settings() if data is None else Settings(data_dir=data.expanduser().absolute())
    fixes = _repair(config) if repair else ()
    is_elsewhere = address.url is not None and data is None and not config.data_dir.is_dir()
    checks = () if is_elsewhere else _check_directory(config, backup)
    findings = chain(fixes, checks, _check_running_parts(config, address))
    print_findings(findings, as_json, "bad", "warn", "nothing is damaged")


def _repair(config: Settings) -> Iterator[Finding]:
    """Lock the data directory and repair it. Raises Conflict while a service uses it."""
    from mallorn.cli.doctor_checks.repair import repair_all

    directory = DataDir(config.data_dir.absolute())
    if not directory.path.is_dir():  # the first check reports it
        return
    directory.create_directories()
    try:
        with directory.hold_stack_lock():
            yield from repair_all(config)
    except DataDirInUse as error:
        raise Conflict(error.message, hint="stop it, then   mallorn doctor --repair") from None


def _check_directory(config: Settings, backup: Path | None) -> Iterator[Finding]:
    from mallorn.cli.doctor_checks import stored_data
    from mallorn.db.repositories.access_control import needs_api_keys

    directory = DataDir(config.data_dir.absolute())
    yield run_check("directory", lambda: stored_data.check_access_rights(directory.path))
    yield run_check("privacy", lambda: stored_data.check_privacy(directory.path), necessary=False)
    yield run_check("disk", lambda: check_free_space(directory.path))
    if find_spec("tvm"):  # candidates are built here
        yield run_check("compiler", check_linker)
    yield run_check("libraries", check_shared_libraries)
    yield run_check("kinds", host_checks.check_kinds)
    yield from _check_stored_data(config, backup)
    yield run_check("stack", lambda: stored_data.describe_running_service(directory), necessary=False)
    yield run_check("leftovers", lambda: stored_data.check_leftovers(directory), necessary=False)
    yield run_check(
        "sandbox", lambda: stored_data.describe_sandbox(config.sandbox_mode(needs_api_keys(config)))
    )


def _check_running_parts(config: Settings, address: Address) -> Iterator[Finding]:
    """Check the parts of the service at `address`, else of the one on the data directory."""
    from mallorn.cli.doctor_checks import service

    stack = DataDir(config.data_dir.absolute()).read_running_stack()
    if address.url is None and stack is None:
        return
    with client(*address, config.data_dir) as api:
        readiness = run_check("service", lambda: service.check_readiness(api))
        yield readiness
        if readiness.ok:
            yield run_check("control", lambda: service.check_control(api))
            yield run_check("workers", lambda: service.check_workers(api))
            yield run_check("devices", lambda: service.check_devices(api), necessary=False)
            yield run_check("locks", lambda: service.check_build_locks(api), necessary=False)
    if address.url is None and stack is not None:
        yield run_check("tracker", lambda: service.check_tracker(stack, config.fleet_key))


def _check_stored_data(config: Settings, backup: Path | None) -> Iterator[Finding]:
    """Run the checks that need the database; stop if it or its tables are unusable."""
    from mallorn.cli.doctor_checks import stored_data
    from mallorn.db.session import Database

    with Database(config.database_url) as database:
        integrity = run_check("database", lambda: stored_data.check_integrity(database))
        yield integrity
        if not integrity.ok:
            return
        yield run_check("backups", lambda: stored_data.describe_backups(database))
        if backup is not None:
            yield run_check("backup", lambda: stored_data.copy_sqlite_database(database, backup))
        tables = run_check("tables", lambda: stored_data.check_tables(database))
        yield tables
        if tables.ok:
            yield run_check("invariants", lambda: stored_data.check_invariants(database))
            yield run_check("models", lambda: stored_data.check_models(database, config.artifacts))
            yield run_check("exports", lambda: stored_data.check_exports(database))
            yield run_check("times", lambda: stored_data.check_times(database), necessary=False)
            yield run_check("cost models", lambda: stored_data.check_cost_models(database))
