"""Child process that drives devices: its RPC session stays open from candidate to candidate."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mallorn.core.addresses import host_and_port
from mallorn.core.errors import Unavailable
from mallorn.core.names import resolve
from mallorn.core.options import EvaluatorOptions
from mallorn.core.outcomes import Outcome
from mallorn.core.plugins import blaming
from mallorn.core.targets import Target
from workers.children.serve import plain, serve
from workers.measure.stopping import StoppingRule, take_times
from workers.measure.stopping.lasting import take_timing
from workers.tvm.archives import load_arrays, save_arrays

if TYPE_CHECKING:
    from workers.tvm.remote import RemoteDevice

DEVICE_WAIT_SEC = 120.0
# A rough idea of the time a run takes, for a twentieth of what the timing itself costs.
ROUGH = {"number": 1, "repeat": 1, "min_repeat_ms": 5}
_held: dict[tuple[str, str], "RemoteDevice"] = {}


def identity(
    tracker: str, target: str, wait_sec: float = DEVICE_WAIT_SEC, hold: bool = False
) -> dict[str, Any]:
    """Take a device of the target, if none is held, and say who it is.

    With `hold` nothing else is timed on its host until the next candidate is over.
    A session that was lost since the last candidate is the fault of neither: it gets a successor.
    """
    held = _held.get((tracker, target))
    if held is not None and not held.answers():
        _held.pop((tracker, target)).close()
    device = _device(tracker, target, wait_sec)
    if hold:
        _hold(device, wait_sec)
    return device.identity


def _hold(device: "RemoteDevice", wait_sec: float) -> None:
    try:
        device.hold(wait_sec)
    except Unavailable:
        release()
        raise


def measure(
    tracker: str,
    target: str,
    artifact: str,
    args: dict[str, Any],
    evaluator: dict[str, int],
    stopping: str,
    candidate_key: str,
    timeout_sec: float,
    entry: str = "main",
    best_us: float | None = None,
) -> dict[str, Any]:
    """Time a library: its outcome, run times, wall time and error."""
    device = _device(tracker, target, DEVICE_WAIT_SEC)
    with blaming(("stopping", stopping)):
        rule: StoppingRule = resolve("stopping", stopping)()
    tensors = device.random_args(args)

    def work(library: Any) -> list[float]:
        def time_runs(number: int) -> float:
            (mean_sec,) = device.timer(library, entry, number=number, repeat=1, min_repeat_ms=0)(*tensors)
            return mean_sec

        def time_once(options: EvaluatorOptions) -> list[float]:
            return [mean_sec * 1e6 for mean_sec in take_timing(options, rough_sec, time_runs)]

        rough_sec = min(device.timer(library, entry, **ROUGH)(*tensors))
        with blaming(("stopping", stopping)):
            return take_times(rule, EvaluatorOptions(**evaluator), time_once, best_us)

    return _attempt(device, artifact, candidate_key, timeout_sec, work, "run_us")


def run_outputs(
    tracker: str,
    target: str,
    artifact: str,
    inputs: str,
    outputs: str,
    candidate_key: str,
    timeout_sec: float,
    entry: str = "main",
) -> dict[str, Any]:
    """Call a library once with the arrays of an npz file, in order, and save all of them after the call."""
    device = _device(tracker, target, DEVICE_WAIT_SEC)
    arrays = load_arrays(inputs)
    tensors = device.copy_args(list(arrays.values()))

    def work(library: Any) -> str:
        library[entry](*tensors)
        save_arrays(outputs, {name: tensor.numpy() for name, tensor in zip(arrays, tensors, strict=True)})
        return outputs

    return _attempt(device, artifact, candidate_key, timeout_sec, work, "outputs")


def release() -> None:
    """Give all devices back, for others to use."""
    while _held:
        _held.popitem()[1].close()


def _device(tracker: str, target: str, wait_sec: float) -> "RemoteDevice":
    from workers.tvm.remote import RemoteDevice

    if (tracker, target) not in _held:
        _held[tracker, target] = RemoteDevice(host_and_port(tracker), Target(target), wait_sec)
    return _held[tracker, target]


def _attempt(
    device: "RemoteDevice",
    artifact: str,
    candidate_key: str,
    timeout_sec: float,
    work: Callable[[Any], Any],
    name: str,
) -> dict[str, Any]:
    """Do the work with a library; one that fails becomes an outcome and costs the session."""
    from workers.tvm.remote import CandidateFailed, CandidateTimeout

    started_sec = time.monotonic()
    outcome, error, result = Outcome.OK, "", None
    try:
        result = device.run(Path(artifact), candidate_key, timeout_sec, work)
    except CandidateTimeout as failure:
        outcome, error = Outcome.RUN_TIMEOUT, f"{failure} ({timeout_sec:g} s)"
    except CandidateFailed as failure:
        outcome, error = Outcome.RUN_ERROR, str(failure)
    finally:
        if result is None:
            release()
    run_ms = (time.monotonic() - started_sec) * 1000
    return {"outcome": outcome.value, name: result, "error": error, "run_ms": run_ms}


METHODS: dict[str, Callable[..., Any]] = {
    "identity": identity,
    "measure": measure,
    "run_outputs": run_outputs,
    "release": release,
}

if __name__ == "__main__":
    # The client's side of RPC needs no compiler: the runtime alone starts faster and stays small.
    os.environ["TVM_USE_RUNTIME_LIB"] = "1"
    serve(plain(METHODS))
