"""Where a job's model is timed: on this host, or over RPC on a device, and what that leaves out."""

from typing import Final

from mallorn.core.errors import MallornError
from workers.finish.job_model import JobModel, where_it_runs
from workers.finish.steps_not_done import NotDoneLog
from workers.whole_model.compiled_model import ONNXRUNTIME
from workers.whole_model.engines import Engines

BESIDE: Final = "time onnxruntime beside it"
WHY: Final = "the device is on another host than this worker"
HINT: Final = "mallorn bench MODEL --schedules DIR, on the device's host"


def placed(model: JobModel) -> JobModel:
    """The model where it is timed. Raises MallornError where the job has no device any more."""
    found = where_it_runs(model)
    if found is None:
        raise MallornError("no device of the target is there any more", hint="mallorn devices")
    return found


def be_here(model: JobModel) -> bool:
    """Raises MallornError where what this host times is not what the job's device would."""
    if placed(model).whole.seat is not None:
        raise MallornError(WHY, hint=HINT)
    return True


def leave_out_onnxruntime(model: JobModel, engines: Engines, undone: NotDoneLog) -> None:
    """It ran on this host: its answers compare with a device's, its times do not."""
    if model.whole.seat is None or ONNXRUNTIME not in engines:
        return
    engines.leave_out(ONNXRUNTIME)
    if all(entry.step != BESIDE for entry in undone.entries):
        undone.leave(BESIDE, WHY, HINT)
