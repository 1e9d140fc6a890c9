"""The words of a job that waits for a device, and the command that ends its waiting."""

from mallorn.core.binding import is_loopback

OTHERS_REACH = "THIS_MACHINE:9190"


def waits_for(target: str) -> str:
    """How the reason of every job begins that waits for a device of this target."""
    return f"waits for a device for {target}"


def waiting_words(target: str, tracker: str, why_not_here: str = "") -> str:
    """The reason of a job without a device: what it waits for, and below it what to type."""
    about = f": this machine cannot run it, {why_not_here}" if why_not_here else ""
    return f"{waits_for(target)}{about}\n{device_command(target, tracker)}"


def paused_words(job_id: str, target: str, tracker: str, waited_sec: float, reason: str) -> str:
    """The reason of a job that was paused because no device came."""
    about = reason.partition("\n")[0].removeprefix(waits_for(target))
    what = f"waited {waited_sec / 60:.0f} minutes for a device for {target}{about}"
    return f"{what}\n{device_command(target, tracker)}   (then: mallorn resume {job_id})"


def device_command(target: str, tracker: str) -> str:
    """What to type on a machine that runs the target; first here, where others do not reach the tracker."""
    there = "mallorn device --target '{}' --tracker {} --host ITS_ADDRESS"
    if is_loopback(tracker.rpartition(":")[0]):
        start = f"mallorn up --tracker {OTHERS_REACH}"
        return f"{start}   (there: {there.format(target, OTHERS_REACH)})"
    return there.format(target, tracker)
