"""Measurers that stand in for devices: `replay` of recordings, and `simulated`.

Their times must never mix with real ones in cost models, best times or schedules, which are
all stored by target. So their jobs get a separate target: its `device` names the measurer, and
TVM treats it like the original.
"""

from typing import Final

from mallorn.core.errors import InvalidRequest, InvalidTarget
from mallorn.core.job_options import DETACHED, JobOptions
from mallorn.core.targets import Target, parse_target

DEVICE: Final = "tvm"  # the measurer on devices that workers reach
ON_DEVICES: Final = frozenset({DEVICE, DETACHED})  # measurers on real devices
STAND_INS: Final = frozenset({"replay", "simulated"})
UNSAID: Final = "the measurer tells times of no device, and does not say so"
SAY_SO: Final = 'stands_in = "simulated" in its class   (workers/measure/base.py)'
#: Value of MALLORN_RECORDINGS that allows any file, for the only user of a machine.
ANY_RECORDING: Final = "*"
LONGEST_NAME: Final = 400


def is_built_by_tvm(options: JobOptions) -> bool:
    """Return whether TVM builds the candidates, so that times depend on the builder."""
    return options.measurer in ON_DEVICES


def stand_in(target: Target) -> str:
    """Return `replay` or `simulated` if the target names one as its device; else empty."""
    device = target.attrs.get("device")
    return str(device) if device in STAND_INS else ""


def measured_target(target: Target, measurer: str) -> Target:
    """Return a job's target; `replay` and `simulated` are added to it as the device.

    Raises InvalidTarget if the target already names another device or measurer.
    """
    device = target.attrs.get("device")
    if measurer in STAND_INS and device not in (None, measurer):
        raise InvalidTarget(
            f"{measurer} stands in for the target's device, and this one names {device!r}",
            hint=f"--target '{real_target(target)}'",
        )
    if measurer not in STAND_INS and stand_in(target):
        raise InvalidTarget(f"no device is {device!r}", hint=f"--option measurer={device}")
    return parse_target({**target.attrs, "device": measurer}) if measurer in STAND_INS else target


def real_target(target: Target) -> Target:
    """Return the target without the field `device`, which names `replay` or `simulated`."""
    return parse_target({name: value for name, value in target.attrs.items() if name != "device"})


def check_recording(options: JobOptions) -> None:
    """Raise InvalidRequest if `replay` names no valid recording, or another measurer names one."""
    name = options.recording
    if options.measurer != "replay":
        if name:
            raise InvalidRequest(
                "only the measurer replay reads a recording", hint="--option measurer=replay"
            )
        return
    if not name:
        raise InvalidRequest(
            "replay needs a recording to answer from: a file that `mallorn record` wrote",
            hint="--option measurer=replay --option recording=NAME.parquet   (below MALLORN_RECORDINGS)",
        )
    if len(name) > LONGEST_NAME or "::" in name or "://" in name or "\0" in name or ".." in name.split("/"):
        raise InvalidRequest(
            "a recording is named by its place below MALLORN_RECORDINGS: no URL, no `..`",
            hint="--option recording=NAME.parquet",
        )


def recording_place(options: JobOptions, recordings: str) -> str:
    """Return the path or URL of the recording that the options name.

    `recordings` is the setting MALLORN_RECORDINGS. Raises InvalidRequest if it does not
    allow the name; jobs cannot give a URL.
    """
    check_recording(options)
    name = options.recording
    if recordings == ANY_RECORDING:
        if name.startswith("/"):
            return name
        raise InvalidRequest(
            f"workers read the recording, and {name!r} leads them nowhere",
            hint=f"--option recording=$PWD/{name}",
        )
    if not recordings:
        raise InvalidRequest(
            "this service replays no recordings: its operator has not set MALLORN_RECORDINGS",
            hint="MALLORN_RECORDINGS=DIRECTORY for coordinator and workers, then --option recording=NAME",
        )
    if name.startswith("/"):
        raise InvalidRequest(
            "a recording is named by its place below MALLORN_RECORDINGS, not by its absolute path",
            hint=f"--option recording={name.rpartition('/')[2]}",
        )
    return f"{recordings.rstrip('/')}/{name}"


def measured_by(name: str) -> str:
    """Return a text such as `measured by replay`; empty if devices measured."""
    if not name or name in ON_DEVICES:
        return ""
    return f"measured by {name}{', on no device' if name in STAND_INS else ''}"
