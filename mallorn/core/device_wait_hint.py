"""Why a job waits for a device, with the command that starts one."""

import shlex
from dataclasses import dataclass

from mallorn.core.address_checks import host_and_port, is_loopback
from mallorn.core.settings import Settings, default_data_dir
from mallorn.core.states import Cause, Waiting

OTHERS_REACH = "THIS_MACHINE:9190"
A_WHILE_SEC = 120.0


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


def describe_waiting(target: str, service: ServiceAddress, why_not_here: str = "") -> Waiting:
    """Return why a job without a device waits; the hint starts a device."""
    local_cause = f": this machine cannot run it, {why_not_here}" if why_not_here else ""
    cause = Cause.NOT_HERE if why_not_here else Cause.NO_DEVICE
    return Waiting(f"waits for a device for {target}{local_cause}", device_command(target, service), cause)


def describe_pause(job_id: str, waiting: Waiting, waited_sec: float) -> Waiting:
    """Return why a job was paused because no device came in time."""
    waited = f"{waited_sec / 60:.0f} minutes" if waited_sec >= A_WHILE_SEC else f"{waited_sec:.0f} s"
    because = f"{waiting.waiting_because}; paused after {waited}"
    return Waiting(because, f"{waiting.hint}   (then: mallorn resume {job_id})", waiting.cause)


def describe_changed_device(old_conditions: str, conditions: str) -> Waiting:
    """Return why a job waits whose device changed, so that its times do not compare."""
    changed = (
        f"its times were taken on {old_conditions}; the device is {conditions} now, and times of the two "
        "do not compare"
    )
    back = "bring back governor, power, quota and TVM as they were"
    hint = f"{back}   (or tune the model anew: that begins with all that is known)"
    return Waiting(changed, hint, Cause.UNLIKE)


def device_command(target: str, service: ServiceAddress) -> str:
    """Return the command to start a device, after one that opens a loopback tracker."""
    template = "mallorn device --target '{}' --tracker {} --host ITS_ADDRESS"
    if is_loopback(host_and_port(service.tracker)[0]):
        start = f"mallorn up{service.data} --tracker {OTHERS_REACH}"
        return f"{start}   (there: {template.format(target, OTHERS_REACH)})"
    return template.format(target, service.tracker)
