"""Jobs on virtual devices: their targets, and the recordings that `replay` may read.

A virtual device is a measurer that looks up or computes times and needs no hardware
(VIRTUAL_DEVICES). Its times must never mix with real ones in cost models, best times or
schedules, which are all stored by target. So its jobs get a separate target, whose `device`
names the measurer; TVM treats it like the original.
"""

from typing import Final

from mallorn.core.errors import InvalidRequest, InvalidTarget
from mallorn.core.job_options import JobOptions
from mallorn.core.registry import VIRTUAL_DEVICES
from mallorn.core.settings import Settings
from mallorn.core.targets import Target, parse_target

#: Value of MALLORN_RECORDINGS that allows any file, for the only user of a machine.
ANY_RECORDING: Final = "*"
LONGEST_NAME: Final = 400
LOCAL_DEVICE_SEC: Final = 60.0  # the largest `simulated.device_sec` without an API key


def add_virtual_device(target: Target, measurer: str) -> Target:
    """Return a job's target; if the measurer is a virtual device, with it as the device.

    Raises InvalidTarget if the target already names another device or measurer.
    """
    device = target.attrs.get("device")
    if measurer in VIRTUAL_DEVICES and device not in (None, measurer):
        message = f"{measurer} replaces the target's device, but the target names {device!r}"
        raise InvalidTarget(message, hint=f"--target '{remove_virtual_device(target)}'")
    if measurer not in VIRTUAL_DEVICES and target.virtual_device:
        raise InvalidTarget(f"{device!r} is a measurer, not a device", hint=f"--option measurer={device}")
    return parse_target({**target.attrs, "device": measurer}) if measurer in VIRTUAL_DEVICES else target


def remove_virtual_device(target: Target) -> Target:
    """Return the target without the field `device`, which names a virtual device."""
    return parse_target({name: value for name, value in target.attrs.items() if name != "device"})


def check_measurer_options(options: JobOptions) -> None:
    """Raise InvalidRequest if `replay` names no valid recording, or another measurer names one."""
    name = options.recording
    if options.measurer != "replay" and name:
        raise InvalidRequest("`recording` needs the measurer replay", hint="--option measurer=replay")
    if options.measurer != "replay":
        return
    if not name:
        raise InvalidRequest(
            "replay needs the option `recording`: a file of `mallorn record`",
            hint="--option measurer=replay --option recording=NAME.parquet   (below MALLORN_RECORDINGS)",
        )
    if len(name) > LONGEST_NAME or "::" in name or "://" in name or "\0" in name or ".." in name.split("/"):
        message = "the option `recording` must be a path relative to MALLORN_RECORDINGS, without `..`"
        raise InvalidRequest(message, hint="--option recording=NAME.parquet")


def check_files(options: JobOptions, settings: Settings, asks_keys: bool) -> None:
    """Raise InvalidRequest if the options name a file that jobs of this service may not read."""
    if options.recording:  # a service that asks for API keys ignores a setting that allows any file
        is_ignored = settings.recordings == ANY_RECORDING and asks_keys
        recording_place(options, "" if is_ignored else settings.recordings)


def check_device_seconds(options: JobOptions, settings: Settings, asks_keys: bool) -> None:
    """Raise InvalidRequest if a simulated candidate would occupy a worker for too long."""
    most_sec = settings.simulated_device_sec
    if most_sec is None:
        most_sec = 0.0 if asks_keys else LOCAL_DEVICE_SEC
    if (device_sec := options.simulated.device_sec) > most_sec:
        message = f"this service allows `simulated.device_sec` up to {most_sec:g}, not {device_sec:g}"
        raise InvalidRequest(message, hint="lower it, or ask the operator: MALLORN_SIMULATED_DEVICE_SEC")


def recording_place(options: JobOptions, recordings: str) -> str:
    """Return the path or URL of the recording that the options name.

    `recordings` is the setting MALLORN_RECORDINGS. Raises InvalidRequest if it does not
    allow the name; jobs cannot give a URL.
    """
    check_measurer_options(options)
    name = options.recording
    if recordings == ANY_RECORDING:
        if name.startswith("/"):
            return name
        message = f"workers read the recording, whose path must be absolute: {name!r}"
        raise InvalidRequest(message, hint=f"--option recording=$PWD/{name}")
    if not recordings:
        raise InvalidRequest(
            "this service replays no recordings: its operator has not set MALLORN_RECORDINGS",
            hint="MALLORN_RECORDINGS=DIRECTORY for coordinator and workers, then --option recording=NAME",
        )
    if name.startswith("/"):
        message = "the option `recording` must be a path relative to MALLORN_RECORDINGS, not an absolute one"
        raise InvalidRequest(message, hint=f"--option recording={name.rpartition('/')[2]}")
    return f"{recordings.rstrip('/')}/{name}"
