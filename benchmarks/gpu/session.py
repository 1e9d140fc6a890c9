"""A process in the product's sandbox that runs kernels of a folder.

    python -m benchmarks.gpu.session KIND ROOM KERNELS

It answers each call with one JSON line: `result`, or `error` if the call failed. It starts with a limit
of address space, which CUDA's driver exceeds and which the product has to lift.
"""

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Final, Self

from benchmarks.gpu.cells import Row, Value
from benchmarks.gpu.device import CUDA, device_of, gpu_meter, load_runtime
from mallorn.stack.supervised_process import DieWithParent

ADDRESS_BYTES: Final = 8 << 30  # address space of a session before CUDA is loaded


class SessionEnded(Exception):
    """Raised if the process of a session ended before it answered."""


class Session:
    """Client of a session: starts its process and calls its methods."""

    def __init__(self, kind: str, kernels: Path) -> None:
        self._room = TemporaryDirectory(prefix="mallorn-session-")
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.gpu.session", kind, self._room.name, str(kernels)],
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            text=True,
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )
        self.sandbox = str(self._answer())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()
        self._room.cleanup()

    def call(self, method: str, **arguments: Value) -> Value:
        """Return a call's result. Raises RuntimeError for an error, SessionEnded if dead."""
        if self._process.stdin is None or self._process.poll() is not None:
            raise SessionEnded("it had ended before the call")
        self._process.stdin.write(json.dumps({"method": method, **arguments}) + "\n")
        self._process.stdin.flush()
        return self._answer()

    @property
    def pid(self) -> int:
        return self._process.pid

    def _answer(self) -> Value:
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            status = self._process.wait()
            errors = self._process.stderr.read().strip() if self._process.stderr else ""
            raise SessionEnded(f"exit status {status}: {errors[-500:]}")
        answer: Row = json.loads(line)
        if "error" in answer:
            raise RuntimeError(str(answer["error"]))
        return answer["result"]


class Kernels:
    """The methods of a session, for libraries of one folder."""

    def __init__(self, kind: str, folder: Path, meter: Any) -> None:
        import numpy as np
        import tvm

        self._folder, self._device, self._meter = folder, device_of(kind), meter
        self._numpy, self._runtime = np, tvm.runtime

    def add(self, library: str, count: int) -> bool:
        """Add two vectors with a prepared kernel; return whether every sum is right."""
        values = self._numpy.arange(count, dtype="float32")
        tensors = [self._runtime.tensor(values, self._device) for _ in range(2)]
        result = self._runtime.tensor(self._numpy.full_like(values, self._numpy.nan), self._device)
        self._load(library)["main"](*tensors, result)
        self._device.sync()
        return bool((result.numpy() == values + values).all())

    def allocate(self, count: int) -> bool:
        """Allocate bytes on the device, and free them."""
        self._runtime.empty((count,), "uint8", self._device)
        return True

    def write_far(self, library: str) -> bool:
        """Run a prepared kernel that writes out of bounds."""
        self._load(library)["main"](self._runtime.empty((1,), "float32", self._device))
        self._device.sync()
        return True

    def endless(self, library: str, count: int, deadline_sec: float) -> bool:
        """Run an endless kernel with a deadline, set as a device sets it for a candidate."""
        signal.setitimer(signal.ITIMER_REAL, deadline_sec)
        self._load(library)["main"](self._runtime.empty((count,), "float32", self._device))
        self._device.sync()
        return True

    def address_space(self) -> Row:
        """Return limits and sizes of this process's address space and data."""
        limits = {name: resource.getrlimit(getattr(resource, name)) for name in ("RLIMIT_AS", "RLIMIT_DATA")}
        status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        used: Row = {name: int(status[name].split()[0]) << 10 for name in ("VmSize", "VmData")}
        return used | {name: list(limit) for name, limit in limits.items()}

    def gpu_load(self) -> Row:
        """Return NVML's report of the GPU from within the sandbox."""
        load = self._meter.read_load()
        return {"share": load.share, "words": list(load.words), "power_limit": self._meter.power_limit()}

    def _load(self, library: str) -> Any:
        return self._runtime.load_module(str(self._folder / library))


def main() -> None:
    """Enter the sandbox, then answer calls until there are no more."""
    DieWithParent(signal.SIGKILL, os.getppid())()
    kind, room, folder = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # keep output of libraries out of the answers
    from mallorn.kinds.cuda.device.cuda_device import CudaDevice
    from mallorn.workers.device.device_kind import DeviceKind
    from mallorn.workers.sandbox.landlock import READ
    from mallorn.workers.sandbox.sandbox import SandboxSpec, enter_sandbox
    from mallorn.workers.subprocesses.hide_torch import hide_torch

    hide_torch()  # as in device sessions: torch would query the driver under the limit
    os.environ |= dict.fromkeys(("HOME", "TMPDIR", "CUDA_CACHE_PATH"), str(room))
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))
    load_runtime(kind)
    meter = gpu_meter() if kind == CUDA else None
    hardware = CudaDevice() if kind == CUDA else DeviceKind()
    others = (*hardware.paths(""), (str(folder), READ))
    _say(answers, {"result": enter_sandbox(SandboxSpec(room, drives_gpu=hardware.drives_gpu, others=others))})
    kernels: Kernels | None = None
    for line in sys.stdin:
        call = json.loads(line)
        try:
            kernels = kernels or Kernels(kind, folder, meter)
            _say(answers, {"result": getattr(kernels, call.pop("method"))(**call)})
        except Exception as error:
            _say(answers, {"error": f"{type(error).__name__}: {error}"[:500]})


def _say(answers: Any, answer: Row) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
