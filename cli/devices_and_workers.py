"""`mallorn devices` and `workers`: list them, and withdraw a device's measurements."""

from datetime import datetime
from shlex import quote
from typing import Annotated, Final

import typer

from mallorn.cli.dataset_options import DAY, to_seconds
from mallorn.cli.terminal import output
from mallorn.cli.terminal.option_groups import command_group
from mallorn.core.host_id import SEPARATE_LOCKS, SHARE_LOCKS
from mallorn.core.values.fleet import (
    DeviceMachine,
    DeviceStatus,
    Withdrawn,
    WorkerStatus,
    find_unshared_locks,
)
from mallorn.wording.format_values import Column, format_age, format_duration

COLUMNS: Final = (
    Column[DeviceStatus]("DEVICE", lambda row: row.name),
    Column[DeviceStatus]("STATE", lambda row: row.state),
    Column[DeviceStatus]("SEEN", lambda row: format_age(row.silent_sec)),
    Column[DeviceStatus]("THREADS", lambda row: row.threads),
    Column[DeviceStatus]("TVM", lambda row: row.tvm_version),
    Column[DeviceStatus]("SANDBOX", lambda row: summarise_sandbox(row.info.sandbox)),
    Column[DeviceStatus]("TARGET", lambda row: row.target, cut=True),
)
WORKER_COLUMNS: Final = (
    Column[WorkerStatus]("WORKER", lambda row: row.id),
    Column[WorkerStatus]("STATE", lambda row: row.state),
    Column[WorkerStatus]("BUSY WITH", lambda row: row.busy_with or "nothing"),
    Column[WorkerStatus]("UP", lambda row: format_duration(row.uptime_sec)),
    Column[WorkerStatus]("SEEN", lambda row: format_age(row.silent_sec)),
    Column[WorkerStatus]("SANDBOX", lambda row: summarise_sandbox(row.info.sandbox)),
)
MINUTE: Final = "%Y-%m-%dT%H:%M"
app = command_group("List the devices that measure, or withdraw a device's measurements.")
KILO: Final = 1024
PARTLY: Final = "partly"
_WORDS: Final = ("full", "off")


@app.command("list")
def devices(as_json: output.JsonOption = False, *, address: output.Address) -> None:
    """List the devices that measure."""
    with output.client(*address) as api:
        rows = api.devices()
        separate = () if as_json else find_unshared_locks(rows, api.workers())
    output.print_rows(rows, COLUMNS, as_json, "no devices; start one with   mallorn device")
    for row in () if as_json else rows:
        if row.online:
            facts = filter(None, (row.info.gpu_words, describe_machine(row.machine)))
            output.print_note(f"{row.name}: {'; '.join(facts)}")
            print_sandbox_gaps(row.name, row.info.sandbox)
    if separate:
        output.print_note(f"{SEPARATE_LOCKS}: {', '.join(separate)}; {SHARE_LOCKS}")


@app.command()
def withdraw(
    device: Annotated[str, typer.Argument(metavar="DEVICE", help="Its name, as the list shows it.")],
    since: Annotated[
        datetime | None,
        typer.Option(metavar="TIME", formats=[DAY, MINUTE], help="Only measurements from this time on, UTC."),
    ] = None,
    yes: output.YesOption = False,
    as_json: output.JsonOption = False,
    *,
    address: output.Address,
) -> None:
    """Withdraw a device's measurements, and the schedules and cost models based on them."""
    with output.client(*address) as api:
        if not yes:
            counts = describe_withdrawn(api.withdraw_device(device, to_seconds(since), dry_run=True))
            from_time = f" --since {since:{MINUTE}}" if since else ""
            command = f"mallorn devices withdraw {quote(device)}{from_time} --yes"
            output.confirm_or_exit(f"Take back {counts}?", command, yes)
        result = api.withdraw_device(device, to_seconds(since))
    if as_json:
        return output.print_json(result)
    output.print_note(f"taken back: {describe_withdrawn(result)}")
    if result.jobs:
        output.print_note(
            f"exports stay as they are; anew without it   mallorn resume {result.jobs[0]} --trials 64"
        )
    output.print_note(f"{device} still measures where it runs: stop it there")


def describe_withdrawn(withdrawn: Withdrawn) -> str:
    """Return the numbers of withdrawn measurements, schedules and cost models as text."""
    jobs = f" of {', '.join(withdrawn.jobs)}" if withdrawn.jobs else ""
    return (
        f"{withdrawn.measurements} measurements, {withdrawn.schedules} schedules{jobs}, "
        f"{withdrawn.cost_models} active cost models"
    )


def workers(*, as_json: output.JsonOption = False, address: output.Address) -> None:
    """List the workers that search, build and drive devices."""
    with output.client(*address) as api:
        rows = api.workers()
    output.print_rows(rows, WORKER_COLUMNS, as_json, "no workers; start one with   mallorn worker")
    for row in () if as_json else rows:
        print_sandbox_gaps(row.id, row.info.sandbox)


def print_sandbox_gaps(name: str, sandbox: str) -> None:
    """Print which parts of the sandbox are missing, if any."""
    if summarise_sandbox(sandbox) == PARTLY:
        output.print_note(f"{name}: sandbox {sandbox}")


def describe_machine(probed: DeviceMachine | None) -> str:
    """Return a device's measured peak rates as text, or why they are missing."""
    if probed is None:
        return "not measured yet"
    if probed.machine is None:
        return f"not measured: {probed.reason}"
    machine, levels = probed.machine, []
    for cache in machine.caches:
        size = cache.bytes / KILO
        size_text = f"{size:.0f} KB" if size < KILO else f"{size / KILO:.0f} MB"
        levels.append(f"{size_text} at {cache.gbytes_per_sec:.0f} GB/s")
    peaks = ", ".join(f"{name} {rate:.0f}" for name, rate in machine.gflops.items())
    return (
        f"GFLOP/s on {machine.cores} cores: {peaks}; "
        f"vectors of {machine.lanes}, {machine.in_flight} to {machine.registers} summed at once; "
        f"caches: {', '.join(levels)}; memory: {machine.memory_gbytes_per_sec:.3g} GB/s; "
        f"a parallel loop starts in {machine.fork_us:.2g} us"
    )


def summarise_sandbox(level: str) -> str:
    """Return `full`, `off` or `partly` for a sandbox's description; `-` for an empty one."""
    if not level:
        return "-"
    return level if level in _WORDS else PARTLY
