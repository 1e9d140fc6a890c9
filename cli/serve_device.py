"""The command that offers this machine as a measuring device."""

import os
from pathlib import Path
from typing import Annotated, Final

import typer

from cli.run_service_part import installed
from cli.terminal.output import print_note
from mallorn.core.address_checks import LAST_PORT, is_loopback
from mallorn.core.log_setup import set_up
from mallorn.core.settings import Settings, settings
from mallorn.core.targets import LOCAL, Target
from stack.temporary_files import own_folder

PORTS: Final = 100
LOCAL_WORDS: Final = (LOCAL, "auto")


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
    log: Annotated[Path | None, typer.Option(help="File that gets one line an execution.")] = None,
) -> None:
    """Measure candidates on this machine. Needs TVM's runtime library alone."""
    # Read by TVM once, when it is imported.
    os.environ["TVM_USE_RUNTIME_LIB"] = "1"
    known = Settings(tracker=tracker) if tracker else settings()
    with installed("worker"):
        from workers.device.key_agent import kept
        from workers.device.serve_device import serve_device
    key = kept(lambda: known.fleet_key)
    wanted = _target(target)
    called = name or f"{os.uname().nodename}-{wanted.key}"
    set_up("device", known)
    print_note(f"device {called} measures for {wanted}")
    ports = range(port, port + PORTS)
    # Not before the key is kept: this program began again then, and the lock on its folder was gone.
    with own_folder("device"):
        serve_device(
            known.tracker_address,
            wanted,
            host,
            ports,
            name=called,
            is_local=target in LOCAL_WORDS,
            log_path=log.absolute() if log else None,
            # Who binds more than loopback runs what others send.
            sandbox=known.sandbox_mode(not is_loopback(host)),
            key=key,
        )


def _target(text: str) -> Target:
    from workers.device.target_support import check_executable, target_on_this_machine

    wanted = target_on_this_machine(LOCAL if text in LOCAL_WORDS else text)
    if text not in LOCAL_WORDS:
        check_executable(wanted)
    return wanted
