"""What must hold on the device before anything is timed, each checked in a process of its own.

    python -m benchmarks.gpu.assertions NAME KIND KERNELS

prints one JSON object. An assertion that fails prints its reason under `error`.
"""

import json
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Final

from benchmarks.gpu.cells import Row
from benchmarks.gpu.device import CUDA, device_of, load_runtime
from benchmarks.gpu.session import Session, SessionEnded
from benchmarks.gpu.special import ADD, ADD_COUNT, FAR, MODEL, OTHER_ARCH, SAVED

# More than any device has, and still an address that a processor's allocator refuses at once.
TOO_MANY_BYTES: Final = 1 << 46
_SMI: Final = (
    "name,uuid,driver_version,memory.total,clocks.sm,clocks.mem,clocks.max.sm,power.draw,power.limit"
)


class LeftOut(Exception):
    """The assertion says nothing on this device; the reason is its text."""


def runtime_loads(kind: str, _kernels: Path) -> Row:
    """TVM's runtime loads without its compiler, for CUDA behind CUDA's runtime."""
    load_runtime(kind)
    import tvm
    import tvm_ffi

    functions = [f"device_api.{kind}", *(["ffi.Module.load_from_bytes.cuda"] if kind == CUDA else [])]
    missing = [name for name in functions if tvm_ffi.get_global_func(name, allow_missing=True) is None]
    _must(not missing, f"not registered: {missing}")
    return {"tvm": str(tvm.__version__), "device": str(device_of(kind).device_name or platform.machine())}


def device_identity(kind: str, _kernels: Path) -> Row:
    """The driver tells the GPU's name, UUID and memory, as the product asks it, and NVML its clocks."""
    if kind != CUDA:
        raise LeftOut("there is no GPU")
    from workers.device.nvidia_driver import visible_gpus

    gpus = visible_gpus()
    _must(bool(gpus), "the driver shows no GPU")
    smi = subprocess.run(
        ["nvidia-smi", f"--query-gpu={_SMI}", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        check=False,
    )
    names, values = _SMI.split(","), smi.stdout.strip().partition("\n")[0].split(", ")
    return {**asdict(gpus[0]), "nvml": dict(zip(names, values, strict=False))}


def session_runs(kind: str, kernels: Path) -> Row:
    """A session behind the walls runs a kernel, and its numbers are right."""
    with Session(kind, kernels) as session:
        _must(session.call("add", library=ADD, count=ADD_COUNT) is True, "the sums are wrong")
        return {"sandbox": session.sandbox}


def other_architecture_refused(kind: str, kernels: Path) -> Row:
    """Device code for another architecture is refused, and the session lives."""
    if kind != CUDA:
        raise LeftOut("a processor refuses libraries of another one when they are loaded")
    with Session(kind, kernels) as session:
        refusal = _error_of(lambda: session.call("add", library=OTHER_ARCH, count=ADD_COUNT))
        _must(session.call("add", library=ADD, count=ADD_COUNT) is True, "it runs nothing afterwards")
        return {"refusal": refusal}


def out_of_memory_is_survived(kind: str, kernels: Path) -> Row:
    """An allocation that is too large fails, and the session lives."""
    with Session(kind, kernels) as session:
        refusal = _error_of(lambda: session.call("allocate", count=TOO_MANY_BYTES))
        _must(session.call("add", library=ADD, count=ADD_COUNT) is True, "it runs nothing afterwards")
        return {"refusal": refusal}


def broken_session_is_replaced(kind: str, kernels: Path) -> Row:
    """A kernel that writes where no memory is makes its session useless, and the next session works."""
    with Session(kind, kernels) as session:
        ended = _error_of(lambda: session.call("write_far", library=FAR))
        afterwards = _error_of(lambda: session.call("add", library=ADD, count=ADD_COUNT))
    with Session(kind, kernels) as session:
        _must(session.call("add", library=ADD, count=ADD_COUNT) is True, "the next session runs nothing")
    return {"ended": ended, "afterwards": afterwards}


def model_runs_as_graph(kind: str, kernels: Path) -> Row:
    """A compiled model gives the same numbers when its CUDA graph is captured and when it is replayed."""
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


ASSERTIONS: Final[Mapping[str, Callable[[str, Path], Row]]] = {
    "runtime loads": runtime_loads,
    "device identity": device_identity,
    "session runs a kernel": session_runs,
    "other architecture is refused": other_architecture_refused,
    "out of memory is survived": out_of_memory_is_survived,
    "broken session is replaced": broken_session_is_replaced,
    "model runs as a CUDA graph": model_runs_as_graph,
}


def _must(holds: bool, reason: str) -> None:
    if not holds:
        raise AssertionError(reason)


def _error_of(call: Callable[[], object]) -> str:
    """Return the error of a call that has to fail."""
    try:
        value = call()
    except (RuntimeError, SessionEnded) as error:
        return f"{type(error).__name__}: {error}"[:300]
    raise AssertionError(f"it returned {value}")


def main() -> None:
    """Check one assertion and print what was found."""
    name, kind, kernels = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    try:
        found: Row = {"ok": True, **ASSERTIONS[name](kind, kernels)}
    except LeftOut as reason:
        found = {"ok": None, "left_out": str(reason)}
    except Exception as error:
        found = {"ok": False, "error": f"{type(error).__name__}: {error}"[:500]}
    sys.stdout.write("\n" + json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
