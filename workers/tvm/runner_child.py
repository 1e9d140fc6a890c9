"""Main module of the child process that runs candidates and models on devices over RPC."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from mallorn.core.address_checks import host_and_port
from mallorn.core.errors import MallornError, Unavailable
from mallorn.core.job_options import EvaluatorOptions
from mallorn.core.outcomes import Outcome
from mallorn.core.targets import Target
from mallorn.core.values.disturbance import Disturbance
from mallorn.core.values.machine import AcceleratorAttributes
from mallorn.workers.device.device_class import DeviceClass, Endpoint, endpoint_of
from mallorn.workers.device.random_and_saved_arrays import load_arrays, save_arrays
from mallorn.workers.device.slice_timing_result import Slice, SliceTimes
from mallorn.workers.host.code_digest import refuse_if_code_changed
from mallorn.workers.host.host_memory import COPIES_OF_ONE
from mallorn.workers.host.load_meter import Load
from mallorn.workers.interfaces.device_runner import DEVICE_WAIT_SEC, DeviceModel, LibraryRun, Runner
from mallorn.workers.interfaces.hardware_probes import Probe
from mallorn.workers.interfaces.tensor_arguments import Arguments
from mallorn.workers.interfaces.whole_model_engine import LoadedEngine
from mallorn.workers.measure.stopping.incremental_timing import SEC_US, CandidateTimes
from mallorn.workers.measure.stopping.stopping_rule import NamedRule, time_library
from mallorn.workers.subprocesses.serve_calls import serve
from mallorn.workers.subprocesses.typed_method import collect_handlers
from mallorn.workers.tvm.sessions.time_probes import shortest


class ImpossibleTime(Exception):
    """The device reported a time that no run can have taken."""


def check_times(run_us: Sequence[float], elapsed_us: float) -> None:
    """Raise ImpossibleTime unless all times are positive and at most `elapsed_us`."""
    for time_us in run_us:
        if not isfinite(time_us) or time_us <= 0:
            raise ImpossibleTime(f"the device reports that a run took {time_us:g} us")
        if time_us > elapsed_us:
            words = f"the device reports that a run took {time_us:g} us"
            raise ImpossibleTime(f"{words}, but the answer came after {elapsed_us:g} us")


if TYPE_CHECKING:
    from mallorn.workers.tvm.sessions.remote_device import RemoteDevice, RemoteModel

T = TypeVar("T")
open_devices: dict[tuple[str, str], "RemoteDevice"] = {}
_classes: dict[tuple[str, str], DeviceClass | None] = {}
open_models: dict[DeviceModel, "RemoteModel"] = {}


class CannotRun(MallornError):
    """A device does not load or run a whole model."""


def identity(
    tracker: str,
    target: str,
    wait_sec: float = DEVICE_WAIT_SEC,
    hold: bool = False,
    like: DeviceClass | None = None,
) -> Endpoint:
    _classes[tracker, target] = like
    current = open_devices.get((tracker, target))
    if current is not None and not (current.is_of_class(like) and current.find_session_error() is None):
        release_devices()
    device = _device(tracker, target, wait_sec)
    if hold:
        try:
            device.reserve_host(wait_sec)
        except Unavailable:
            release_devices()
            raise
    return endpoint_of(device.identity)


def time_candidate(
    tracker: str,
    target: str,
    artifact: str,
    args: Arguments,
    evaluator: EvaluatorOptions,
    stopping: str,
    candidate_key: str,
    timeout_sec: float,
    patience_sec: float,
    best_us: float | None = None,
) -> LibraryRun:
    device, rule = _device(tracker, target), NamedRule(stopping)
    times, tensors = CandidateTimes(patience_sec), list[Any]()

    def work(library: Any) -> list[float]:
        def time_slices(number: int, count: int) -> SliceTimes:
            return device.time_slices(library, number, count, tensors, cold=evaluator.flush_l2 == "on")

        return time_library(times, library, device.device, tensors, rule, evaluator, best_us, time_slices)

    def fill() -> None:
        tensors.extend(device.random_args(args))

    run = run_library(device, artifact, candidate_key, timeout_sec + patience_sec, work, prepare=fill)
    disturbance = Disturbance.model_validate(times.disturbance())
    return replace(run, disturbed=times.other_programs_share, disturbance=disturbance)


def time_probes(
    tracker: str, target: str, folder: str, probes: Sequence[Probe], timeout_sec: float
) -> list[Slice]:
    device = _device(tracker, target)
    library = probes[0].library
    slices: list[Slice] = []

    def shortest_run(module: Any, probe: Probe) -> Slice:
        tensors = device.random_args(probe.args)
        return shortest(lambda count: device.time_slices(module, 1, count, tensors, probe.function).slices)

    def work(module: Any) -> list[float]:
        slices.extend(shortest_run(module, probe) for probe in probes)
        return [run.mean_sec * SEC_US for run in slices]

    run = run_library(device, str(Path(folder, library)), f"machine/{library}/probe", timeout_sec, work)
    return slices if run.run_us else []


def accelerator_attributes(tracker: str, target: str, timeout_sec: float) -> AcceleratorAttributes:
    device = _device(tracker, target, timeout_sec).device  # its attributes are None if it lacks them
    clock_ghz = (device.max_clock_rate or 0) / 1e6  # the runtime's unit is kHz
    return AcceleratorAttributes(
        device.multi_processor_count or 0, clock_ghz, device.l2_cache_size_bytes or 0
    )


def run_and_save_arrays(
    tracker: str,
    target: str,
    artifact: str,
    inputs: str,
    outputs: str,
    candidate_key: str,
    timeout_sec: float,
) -> LibraryRun:
    device = _device(tracker, target)
    arrays = load_arrays(inputs)
    tensors = device.copy_args(list(arrays.values()))

    def work(library: Any) -> list[float]:
        library[device.entry](*tensors)
        save_arrays(outputs, {name: tensor.numpy() for name, tensor in zip(arrays, tensors, strict=True)})
        return []

    return run_library(device, artifact, candidate_key, timeout_sec, work)


def load_model(model: DeviceModel, timeout_sec: float) -> LoadedEngine:
    _run_with_model(model, timeout_sec, lambda _model: None)
    identity = _device(model.tracker, model.target).identity
    return LoadedEngine("tvm", identity["tvm_version"], identity["threads"])


def save_model_outputs(model: DeviceModel, outputs: str, timeout_sec: float) -> int:
    arrays = _run_with_model(model, timeout_sec, lambda remote: remote.outputs())
    np.savez(outputs, **{f"output_{index}": array for index, array in enumerate(arrays)})
    return len(arrays)


def time_model(model: DeviceModel, number: int, timeout_sec: float) -> list[float]:
    started_sec = time.monotonic()
    run_secs = _run_with_model(model, timeout_sec, lambda remote: remote.time(number))
    run_us = [seconds * SEC_US for seconds in run_secs]
    try:
        check_times(run_us, (time.monotonic() - started_sec) * SEC_US)
    except ImpossibleTime as error:
        raise CannotRun(str(error)) from None
    return run_us


def time_model_kernels(model: DeviceModel, seconds: float, timeout_sec: float) -> dict[str, float]:
    return _run_with_model(model, timeout_sec, lambda remote: remote.time_kernels(seconds))


def drop_model(model: DeviceModel) -> None:
    open_models.pop(model, None)


def host_load(tracker: str, target: str, timeout_sec: float) -> Load:
    return _run_on_device(tracker, target, "load", timeout_sec, lambda device: device.read_load())


def _run_with_model(model: DeviceModel, timeout_sec: float, work: Callable[["RemoteModel"], T]) -> T:
    """Run `work` with a model on a device, and load the model first if it is not there. The
    host is reserved meanwhile. Raises CannotRun, Unavailable."""
    from mallorn.workers.tvm.sessions.remote_device import RemoteModel

    identity(model.tracker, model.target, hold=True, like=model.like)
    if model not in open_models:  # before its upload, check that the device has memory to load it
        device = _device(model.tracker, model.target)
        sizes = [os.path.getsize(path) for path in (model.library, model.inputs)]
        needed_bytes, free_bytes = sum(sizes) * COPIES_OF_ONE, device.free_memory()
        if 0 <= free_bytes < needed_bytes:
            raise CannotRun(
                f"device {device.identity['name']} has {free_bytes / 1e9:.1f} GB of free memory, and loading "
                f"the model takes {needed_bytes / 1e9:.1f} GB",
                hint="free memory on the device's host, or use a device with more",
            )

    def use_model(device: "RemoteDevice") -> T:
        if model not in open_models:
            open_models[model] = RemoteModel(device, Path(model.library), Path(model.inputs))
        return work(open_models[model])

    return _run_on_device(model.tracker, model.target, model.key, timeout_sec, use_model)


def _run_on_device(
    tracker: str, target: str, key: str, timeout_sec: float, work: Callable[["RemoteDevice"], T]
) -> T:
    """Run `work` on a device; end the session on failure. Raises CannotRun, Unavailable."""
    from mallorn.workers.tvm.sessions.remote_device import CandidateFailed, CandidateTimeout

    device = _device(tracker, target)
    name = device.identity["name"]
    try:
        return device.attempt(key, timeout_sec, lambda: work(device))
    except CandidateTimeout as failure:
        release_devices()
        raise CannotRun(f"device {name} {failure} ({timeout_sec:g} s)") from None
    except CandidateFailed as failure:
        release_devices()
        raise CannotRun(f"device {name}: {failure}") from None
    except Unavailable:
        release_devices()
        raise


def release_devices() -> None:
    open_models.clear()
    while open_devices:
        open_devices.popitem()[1].close()


def _device(tracker: str, target: str, wait_sec: float = DEVICE_WAIT_SEC) -> "RemoteDevice":
    from mallorn.workers.tvm.sessions.remote_device import RemoteDevice

    if (tracker, target) not in open_devices:
        release_devices()  # a sandboxed process can use one session at a time
        like = _classes.get((tracker, target))
        open_devices[tracker, target] = RemoteDevice(host_and_port(tracker), Target(target), wait_sec, like)
    return open_devices[tracker, target]


def run_library(
    device: "RemoteDevice",
    artifact: str,
    candidate_key: str,
    timeout_sec: float,
    work: Callable[[Any], list[float]],
    prepare: Callable[[], object] = tuple,
) -> LibraryRun:
    """Call `prepare`, without a time limit, then upload a library and run `work`, which
    returns microseconds. A failure ends the session and is returned as an outcome."""
    from mallorn.workers.tvm.sessions.remote_device import CandidateFailed, CandidateTimeout

    started_sec = time.monotonic()
    outcome, error, run_us = Outcome.OK, "", None
    try:
        prepare()
        run_us = device.run(Path(artifact), candidate_key, timeout_sec, work)
        check_times(run_us, (time.monotonic() - started_sec) * SEC_US)
    except CandidateTimeout as failure:
        outcome, error = Outcome.RUN_TIMEOUT, f"{failure} ({timeout_sec:g} s)"
    except CandidateFailed as failure:
        outcome, error = failure.outcome, str(failure)
    except ImpossibleTime as refusal:
        outcome, error, run_us = Outcome.RUN_ERROR, str(refusal), None
    finally:
        if run_us is None:
            release_devices()
    run_ms = (time.monotonic() - started_sec) * 1000
    return LibraryRun(outcome, tuple(run_us or ()), error, run_ms)


ANSWERS: Final = (
    Runner.take_device.make_handler(identity),
    Runner.time_candidate.make_handler(time_candidate),
    Runner.time_probes.make_handler(time_probes),
    Runner.accelerator_attributes.make_handler(accelerator_attributes),
    Runner.run_and_save_arrays.make_handler(run_and_save_arrays),
    Runner.load_model.make_handler(load_model),
    Runner.save_model_outputs.make_handler(save_model_outputs),
    Runner.time_model.make_handler(time_model),
    Runner.time_model_kernels.make_handler(time_model_kernels),
    Runner.drop_model.make_handler(drop_model),
    Runner.host_load.make_handler(host_load),
    Runner.release_devices.make_handler(release_devices),
)

if __name__ == "__main__":
    # An RPC client needs no compiler: TVM's runtime starts faster and takes less memory.
    os.environ["TVM_USE_RUNTIME_LIB"] = "1"
    serve(refuse_if_code_changed(collect_handlers(Runner, *ANSWERS)))
