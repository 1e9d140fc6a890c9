"""The command that runs the whole service on this machine."""

import os
import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from mallorn.cli.run_service_part import require_packages
from mallorn.cli.terminal.output import print_note
from mallorn.core import address_checks
from mallorn.core.settings import Settings, unknown_variables
from mallorn.services.coordinator.sign_in.allow_list import AllowList
from mallorn.stack.data_directory import DataDir
from mallorn.stack.process_specs import LOOPBACK, StackLayout


def up(
    port: Annotated[
        int, typer.Option(min=0, max=address_checks.LAST_PORT, help="Port of the API; 0 takes a free one.")
    ] = 8000,
    host: Annotated[
        str, typer.Option(help="Address of the API; others than loopback need API keys.")
    ] = LOOPBACK,
    data: Annotated[
        Path | None, typer.Option(help="Where database, models and logs are kept.  [MALLORN_DATA_DIR]")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Workers that tune; one more imports.")] = 1,
    tracker: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            help="Address where devices of other machines register: a private interface of this one. "
            "Default: a free port on loopback.",
        ),
    ] = "",
    until_unused: Annotated[bool, typer.Option("--until-unused", hidden=True)] = False,
) -> None:
    """Run the whole service on this machine, until stopped."""
    from mallorn.cli.main import app
    from mallorn.stack.run_stack import run_stack

    config = Settings() if data is None else Settings(data_dir=data.expanduser().absolute())
    for sentence in unknown_variables(os.environ):
        print_note(sentence)
    if config.oidc_issuer:
        AllowList.of(config)  # reports errors here, not in the coordinator's log
    needs_api_keys = bool(config.api_keys or config.oidc_issuer)
    if not needs_api_keys and not address_checks.is_loopback(host):
        with require_packages("server,worker"):
            from mallorn.db.repositories.access_control import has_api_keys
        needs_api_keys = has_api_keys(config.database_url)
    address_checks.check_binding(host, needs_api_keys)
    directory = DataDir(config.data_dir.absolute())
    directory.create_directories()
    with directory.hold_stack_lock() as announce:
        api_port = address_checks.check_or_choose_port(host, port)
        if tracker:
            tracker_host, requested_port = address_checks.host_and_port(tracker)
            tracker_port = address_checks.check_or_choose_port(tracker_host, requested_port)
        else:
            tracker_host, tracker_port = LOOPBACK, address_checks.free_port(excluded=(api_port,))
        layout = StackLayout(directory, host, api_port, f"{tracker_host}:{tracker_port}", workers)
        announce(layout.url)
        run_stack(layout, config, until_unused, print_note, partial(app, prog_name="mallorn"))
    if until_unused:  # a command waits, and Python's shutdown takes half a second
        sys.stderr.flush()
        os._exit(0)
