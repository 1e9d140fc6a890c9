"""Assertions to check on the device before timing, each in a new process.

    python -m benchmarks.gpu.assertions NAME KIND KERNELS

prints one JSON object. An assertion that fails prints its reason under `error`.
"""

import json
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from benchmarks.gpu.cells import Row, Value
from benchmarks.gpu.device import CUDA, device_of, gpu_meter, load_runtime
from benchmarks.gpu.session import Session, SessionEnded
from benchmarks.gpu.special import ADD, ADD_COUNT, ENDLESS, ENDLESS_COUNT, FAR, MODEL, OTHER_ARCH, SAVED

if TYPE_CHECKING:
    from mallorn.kinds.cuda.device.cuda_device import CudaDevice
from mallorn.workers.device.device_kind import DeviceKind
from mallorn.workers.device.slice_timing_result import SliceTimes

# More than any device has; a CPU's allocator refuses it at once.
TOO_MANY_BYTES: Final = 1 << 46
DEADLINE_SEC: Final = 3.0  # for the kernel that never returns
INSIDE_SEC: Final = 0.2
ALONE_RUNS: Final = 20
BUSY_SIZE: Final = 8192
BUSY_SEC: Final = 3.0
_SMI: Final = (
    "name,uuid,driver_version,memory.total,clocks.sm,clocks.mem,clocks.max.sm,power.draw,power.limit"
)


class LeftOut(Exception):
    """Raised if an assertion does not apply to this device; the text is the reason."""


def runtime_loads(kind: str, _kernels: Path) -> Row:
    """TVM's runtime loads without its compiler, for CUDA after CUDA's runtime."""
    load_runtime(kind)
    import tvm
    import tvm_ffi

    functions = [f"device_api.{kind}", *(["ffi.Module.load_from_bytes.cuda"] if kind == CUDA else [])]
    missing = [name for name in functions if tvm_ffi.get_global_func(name, allow_missing=True) is None]
    _must(not missing, f"not registered: {missing}")
    return {"tvm": str(tvm.__version__), "device": str(device_of(kind).device_name or platform.machine())}


def device_identity(kind: str, _kernels: Path) -> Row:
    """The driver reports the GPU's name, UUID and memory, and NVML its clocks."""
    _needs_gpu(kind)
    from mallorn.kinds.cuda.device.nvidia_driver import visible_gpus

    gpus = visible_gpus()
    _must(bool(gpus), "the driver shows no GPU")
    return {**asdict(gpus[0]), "nvml": _smi()}


def session_runs(kind: str, kernels: Path) -> Row:
    """A sandboxed session runs a kernel, and its results are right."""
    with Session(kind, kernels) as session:
        _must(session.call("add", library=ADD, count=ADD_COUNT) is True, "the sums are wrong")
        return {"sandbox": session.sandbox}


def other_architecture_refused(kind: str, kernels: Path) -> Row:
    """Device code for another architecture is refused, and the session survives."""
    if kind != CUDA:
        raise LeftOut("a processor refuses libraries of another one when they are loaded")
    with Session(kind, kernels) as session:
        refusal = _error_of(lambda: session.call("add", library=OTHER_ARCH, count=ADD_COUNT))
        _must(session.call("add", library=ADD, count=ADD_COUNT) is True, "it runs nothing afterwards")
        return {"refusal": refusal}


def out_of_memory_is_survived(kind: str, kernels: Path) -> Row:
    """An allocation that is too large fails, and the session survives."""
    with Session(kind, kernels) as session:
        refusal = _error_of(lambda: session.call("allocate", count=TOO_MANY_BYTES))
        _must(session.call("add", library=ADD, count=ADD_COUNT) is True, "it runs nothing afterwards")
        return {"refusal": refusal}


def broken_session_is_replaced(kind: str, kernels: Path) -> Row:
    """A kernel that writes out of bounds breaks its session, and the next session works."""
    with Session(kind, kernels) as session:
        ended = _error_of(lambda: session.call("write_far", library=FAR))
        afterwards = _error_of(lambda: session.call("add", library=ADD, count=ADD_COUNT))
    with Session(kind, kernels) as session:
        _must(session.call("add", library=ADD, count=ADD_COUNT) is True, "the next session runs nothing")
    return {"ended": ended, "afterwards": afterwards}


def model_runs_as_graph(kind: str, kernels: Path) -> Row:
    """A model gives right results when its CUDA graph is captured and when it is replayed."""
    load_runtime(kind)
    import numpy as np
    import tvm
    from tvm.runtime.vm import VirtualMachine

    device = device_of(kind)
    machine = VirtualMachine(tvm.runtime.load_module(str(kernels / MODEL)), device)
    saved = np.load(kernels / SAVED)
    runs = [
        machine["main"](tvm.runtime.tensor(saved["input"], device)).numpy() for _ in range(3)
    ]  # captured at the second run at the latest
    errors = [float(np.abs(run - saved["output"]).max() / np.abs(saved["output"]).max()) for run in runs]
    _must(max(errors) < 1e-3, f"relative errors {errors}")
    return {"errors": list(errors)}


def nvml_answers_in_a_session(kind: str, kernels: Path) -> Row:
    """In the sandbox, NVML reports the GPU's lost share and power limit."""
    _needs_gpu(kind)
    with Session(kind, kernels) as session:
        load = session.call("gpu_load")
    _must(isinstance(load, dict) and load["share"] is not None, "NVML does not answer behind the walls")
    return {"load": load}


def address_space_is_lifted(kind: str, kernels: Path) -> Row:
    """A sandboxed session that starts with a limited address space runs a kernel."""
    with Session(kind, kernels) as session:
        _must(session.call("add", library=ADD, count=ADD_COUNT) is True, "the sums are wrong")
        return {"bytes": session.call("address_space")}


def endless_kernel_is_ended(kind: str, kernels: Path) -> Row:
    """An endless kernel ends at its deadline with its session; other sessions continue."""
    with Session(kind, kernels) as other, Session(kind, kernels) as session:
        _must(other.call("add", library=ADD, count=ADD_COUNT) is True, "the other session runs nothing")
        arguments = {"library": ENDLESS, "count": ENDLESS_COUNT, "deadline_sec": DEADLINE_SEC}
        began_sec = time.monotonic()
        ended = _error_of(lambda: session.call("endless", **arguments))
        took_sec = time.monotonic() - began_sec
        _must("exit status -14" in ended, f"its deadline did not end it: {ended}")
        _must(other.call("add", library=ADD, count=ADD_COUNT) is True, "the other session ended, too")
    with Session(kind, kernels) as session:
        _must(session.call("add", library=ADD, count=ADD_COUNT) is True, "the next session runs nothing")
    return {"deadline_sec": DEADLINE_SEC, "ended_after_sec": round(took_sec, 3)}


def driver_stays_out_of_the_device(kind: str, kernels: Path) -> Row:
    """A device queries the driver in forked processes; it never maps libcuda itself."""
    _needs_gpu(kind)
    from mallorn.kinds.cuda.device.nvidia_driver import gpu_fault, visible_gpus

    gpus, fault = visible_gpus(), gpu_fault()
    _must(bool(gpus) and not fault, f"{len(gpus)} GPUs; {fault}")
    _must("libcuda.so" not in Path("/proc/self/maps").read_text(), "libcuda is mapped")
    with Session(kind, kernels) as session:
        session.call("address_space")  # this creates a device
        _must("libcuda.so" in Path(f"/proc/{session.pid}/maps").read_text(), "a session does without libcuda")
    return {"gpus": len(gpus)}


def fault_is_asked_quickly(kind: str, _kernels: Path) -> Row:
    """`gpu_fault` reports no fault; its seconds are recorded."""
    _needs_gpu(kind)
    from mallorn.kinds.cuda.device.nvidia_driver import gpu_fault

    took_sec: list[Value] = []
    for _ in range(3):
        began_sec = time.monotonic()
        fault = gpu_fault()
        took_sec.append(round(time.monotonic() - began_sec, 3))
        _must(not fault, fault)
    return {"took_sec_each": took_sec}


def kernels_are_timed_inside(kind: str, kernels: Path) -> Row:
    """Each kernel has a time inside its model, and one outside."""
    load_runtime(kind)
    import numpy as np
    import tvm
    from tvm.runtime.vm import VirtualMachine

    from mallorn.workers.device.model_kernel_times import Kernels, clock_of

    hardware = hardware_of(kind)
    hardware.enable_graphs(0)
    device, library = device_of(kind), tvm.runtime.load_module(str(kernels / MODEL))
    module = VirtualMachine(library, device).module
    values = np.load(kernels / SAVED)["input"]
    module["set_input"]("main", tvm.runtime.tensor(values, device))
    clock = clock_of(hardware, device.sync)
    run = module["invoke_stateful"]
    inside = Kernels(module["set_instrument"], lambda: run("main"), clock).measure_times_us(INSIDE_SEC)
    alone: dict[str, float] = {}
    for name in inside:
        kernel = library.get_function(name, query_imports=True)
        tensors = [tvm.runtime.tensor(values, device) for _ in range(3 if "matmul" in name else 2)]
        kernel(*tensors)
        marks = []
        clock.begin_run()
        for _ in range(ALONE_RUNS):
            begin = clock.record_mark()
            kernel(*tensors)
            marks.append((begin, clock.record_mark()))
        clock.end_run()
        alone[name] = median(clock.seconds_between(*pair) for pair in marks) * 1e6
    _must(bool(inside) and all(us > 0 for us in (*inside.values(), *alone.values())), "a kernel has no time")
    return {
        "inside_us": {name: round(us, 2) for name, us in inside.items()},
        "alone_us": {name: round(us, 2) for name, us in alone.items()},
    }


def hardware_of(kind: str) -> DeviceKind:
    return CudaDevice() if kind == CUDA else DeviceKind()


def first_run_is_right(kind: str, kernels: Path) -> Row:
    """The first run of a process, which loads library and context, is right."""
    load_runtime(kind)
    import numpy as np
    import tvm

    from mallorn.workers.device.slice_timer import NEXT_SLICE, SliceTimer

    device, values = device_of(kind), np.arange(ADD_COUNT, dtype="float32")
    began_sec = time.monotonic()
    library = tvm.runtime.load_module(str(kernels / ADD))
    tensors = [tvm.runtime.tensor(values, device) for _ in range(3)]
    library["main"](*tensors)
    device.sync()
    first_ms = (time.monotonic() - began_sec) * 1e3
    _must(bool((tensors[2].numpy() == values + values).all()), "the sums of the first run are wrong")
    timer = SliceTimer(on_cores=kind != CUDA, has_priority=False, kind=hardware_of(kind))
    tvm.register_global_func(NEXT_SLICE, timer.count_slice, override=True)
    warm = timer.time_slices(library, "main", kind, ALONE_RUNS, 3, *tensors)
    result: Row = {"first_ms": round(first_ms, 3), "warm_us": _mean_us(warm)}
    if kind == CUDA:
        result["empty_cache_us"] = _mean_us(
            timer.time_cold_slices(library, "main", kind, ALONE_RUNS, 3, *tensors)
        )
    return result


def own_load_is_no_disturbance(kind: str, _kernels: Path) -> Row:
    """Under an fp16 product of size 8192, NVML answers and blames no other process."""
    _needs_gpu(kind)
    from benchmarks.gpu.arithmetic import arithmetic_of
    from benchmarks.gpu.tasks import PRODUCT, Task

    meter, arithmetic = gpu_meter(), arithmetic_of(kind)
    size = BUSY_SIZE
    arguments = [["float16", [size, size], 0.1, 1.0]] * 2
    rival = arithmetic.rival(Task("", PRODUCT, (size,) * 3, "float16"), arithmetic.inputs(arguments))
    if rival is None:
        raise LeftOut("torch is not installed")
    until_sec, load = time.monotonic() + BUSY_SEC, meter.read_load()
    while time.monotonic() < until_sec:
        us = arithmetic.times_us(rival[1], 10, False)
        load = meter.read_load()
    _must(load.share is not None, "NVML does not answer")
    _must(not any("other processes" in words for words in load.words), f"{load.words}")
    return {"share": load.share, "words": list(load.words), "us": round(us, 1), "smi": _smi()}


ASSERTIONS: Final[Mapping[str, Callable[[str, Path], Row]]] = {
    "runtime loads": runtime_loads,
    "device identity": device_identity,
    "session runs a kernel": session_runs,
    "other architecture is refused": other_architecture_refused,
    "out of memory is survived": out_of_memory_is_survived,
    "broken session is replaced": broken_session_is_replaced,
    "model runs as a CUDA graph": model_runs_as_graph,
    "NVML answers behind the walls": nvml_answers_in_a_session,
    "limit of address space is lifted": address_space_is_lifted,
    "endless kernel is ended": endless_kernel_is_ended,
    "driver stays out of the device": driver_stays_out_of_the_device,
    "gpu_fault answers": fault_is_asked_quickly,
    "kernels are timed inside a model": kernels_are_timed_inside,
    "first run is right": first_run_is_right,
    "own load is no disturbance": own_load_is_no_disturbance,
}


def _needs_gpu(kind: str) -> None:
    if kind != CUDA:
        raise LeftOut("there is no GPU")


def _mean_us(times: "SliceTimes") -> float:
    return round(median(each.mean_sec for each in times.slices) * 1e6, 3)


def _smi() -> Row:
    """Return nvidia-smi's figures of the first GPU; empty if it is not installed."""
    names = _SMI.split(",")
    try:
        output = subprocess.run(
            ["nvidia-smi", f"--query-gpu={_SMI}", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            check=False,
        ).stdout
    except FileNotFoundError:
        return {}
    return dict(zip(names, output.strip().partition("\n")[0].split(", "), strict=False))


def _must(holds: bool, reason: str) -> None:
    if not holds:
        raise AssertionError(reason)


def _error_of(call: Callable[[], object]) -> str:
    """Return the error of a call. Raises AssertionError if the call succeeds."""
    try:
        value = call()
    except (RuntimeError, SessionEnded) as error:
        return f"{type(error).__name__}: {error}"[:300]
    raise AssertionError(f"it returned {value}")


def main() -> None:
    """Check one assertion and print its result as JSON."""
    name, kind, kernels = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    try:
        result: Row = {"ok": True, **ASSERTIONS[name](kind, kernels)}
    except LeftOut as reason:
        result = {"ok": None, "left_out": str(reason)}
    except Exception as error:
        result = {"ok": False, "error": f"{type(error).__name__}: {error}"[:500]}
    sys.stdout.write("\n" + json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
