"""Reason texts of jobs that wait for a device, with the command that starts one."""

import shlex
from dataclasses import dataclass

from mallorn.core.address_checks import host_and_port, is_loopback
from mallorn.core.settings import Settings, default_data_dir
from mallorn.core.states import Cause

OTHERS_REACH = "THIS_MACHINE:9190"
A_WHILE_SEC = 120.0
WAITING = (Cause.NO_DEVICE, Cause.NOT_HERE, Cause.UNLIKE)


@dataclass(frozen=True, slots=True)
class ServiceAddress:
    """The service's tracker address, and ` --data DIR` if that is not the default."""

    tracker: str
    data: str = ""

    @classmethod
    def of(cls, settings: Settings) -> "ServiceAddress":
        """Read the address from the settings of one of the service's processes."""
        usual = settings.data_dir == default_data_dir()
        return cls(settings.tracker, "" if usual else f" --data {shlex.quote(str(settings.data_dir))}")


def describe_waiting(target: str, service: ServiceAddress, why_not_here: str = "") -> str:
    """Return the reason of a job without a device; its second line starts a device."""
    cause = _describe_local_cause(why_not_here)
    return f"waits for a device for {target}{cause}\n{device_command(target, service)}"


def find_device_command(reason: str, cause: str | None) -> str:
    """Return the command in a job's reason if it lacks a device; else an empty text."""
    command = reason.partition("\n")[2]
    return f"next: {command}" if cause in (Cause.NOT_HERE, Cause.UNLIKE) else ""


def describe_pause(
    job_id: str, target: str, service: ServiceAddress, waited_sec: float, why_not_here: str = ""
) -> str:
    """Return the reason of a job that was paused because no device came in time."""
    waited = f"{waited_sec / 60:.0f} minutes" if waited_sec >= A_WHILE_SEC else f"{waited_sec:.0f} s"
    reason = f"waited {waited} for a device for {target}{_describe_local_cause(why_not_here)}"
    return f"{reason}\n{device_command(target, service)}   (then: mallorn resume {job_id})"


def describe_changed_device(job_id: str, old_conditions: str, conditions: str) -> str:
    """Return the reason of a job whose device changed, so that its times do not compare."""
    changed = (
        f"its times were taken on {old_conditions}; the device is {conditions} now, and times of the two "
        "do not compare"
    )
    back = f"bring back governor, power, quota and TVM as they were; mallorn resume {job_id} if it is paused"
    return f"{changed}\n{back}   (or tune the model anew: that begins with all that is known)"


def device_command(target: str, service: ServiceAddress) -> str:
    """Return the command to start a device, after one that opens a loopback tracker."""
    template = "mallorn device --target '{}' --tracker {} --host ITS_ADDRESS"
    if is_loopback(host_and_port(service.tracker)[0]):
        start = f"mallorn up{service.data} --tracker {OTHERS_REACH}"
        return f"{start}   (there: {template.format(target, OTHERS_REACH)})"
    return template.format(target, service.tracker)


def _describe_local_cause(cause: str) -> str:
    return f": this machine cannot run it, {cause}" if cause else ""
