"""Time libraries on the GPU that several processes share, one at a time, and count its busy seconds."""

import fcntl
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, Final

from mallorn.core.job_options import EvaluatorOptions
from mallorn.workers.detached import run_batch
from mallorn.workers.detached.run_batch import DeviceProcess, Json
from mallorn.workers.measure.run_timeout_and_retakes import Retakes

SEARCHED: Final = EvaluatorOptions(number=1, repeat=3, min_repeat_ms=5)
FINAL: Final = EvaluatorOptions(number=1, repeat=5, min_repeat_ms=20)
TIMEOUT_SEC: Final = 10.0
_OF_A_NETWORK: Final = ("name", "hostname", "host_id")


@contextmanager
def hold_gpu(lock: Path) -> Iterator[float]:
    """Hold the lock of the GPU; yield the seconds that were waited for it."""
    began_sec = time.monotonic()
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield time.monotonic() - began_sec


@dataclass(frozen=True, slots=True)
class Run:
    """The answer of a device, and the seconds for which the call waited and held the GPU."""

    answer: Json
    waited_sec: float
    held_sec: float


class GpuTurns:
    """A session on the device. Calls run one by one in a thread of their own, under the GPU's lock."""

    def __init__(self, room: Path, lock: Path, manifest: dict[str, Any]) -> None:
        """`manifest` is of a batch without calls. The session starts with the first call."""
        room.mkdir(parents=True, exist_ok=True)
        self._room, self._lock, self._manifest = room, lock, manifest
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="gpu-turns")
        self._session: DeviceProcess | None = None

    def submit(self, call: Json) -> "Future[Run]":
        """Start a call as soon as the GPU is free."""
        return self._thread.submit(self._run, call)

    def device(self) -> dict[str, Any]:
        """Return the identity of the device, without its name in a network. Raises BatchRefused."""
        identity: dict[str, Any] = self._thread.submit(self._identity).result()
        return {
            name: value for name, value in identity.items() if name not in ("name", "hostname", "host_id")
        }

    def close(self) -> None:
        """End the session; a call that runs ends with it."""
        session, self._session = self._session, None
        if session is not None:
            with suppress(OSError):
                session.close()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _identity(self) -> Any:
        # The thread starts the session, because the kernel ends it with the thread that started it.
        if self._session is None:
            self._session = DeviceProcess(self._manifest, self._room, "off")
        return self._session.device

    def _run(self, call: Json) -> Run:
        self._identity()
        with hold_gpu(self._lock) as waited_sec:
            began_sec = time.monotonic()
            session = self._session
            answer = None if session is None else session.run_call(call, inf)
            if answer is None:
                answer = {"outcome": "cancelled", "error": "the part ended"}
            return Run(answer, waited_sec, time.monotonic() - began_sec)


def timing(
    call: Json, library: Path, best_us: float | None, evaluator: EvaluatorOptions, check: bool
) -> Json:
    """Return a call for one library, from the call that all kernels of its task share."""
    flush = {"flush_l2": call["timing"]["evaluator"]["flush_l2"]}
    asked = {"evaluator": evaluator.model_dump() | flush, "timeout_sec": TIMEOUT_SEC, "best_us": best_us}
    asked["patience_sec"] = Retakes(evaluator).left_sec()
    about = {"library": str(library), "timing": call["timing"] | asked}
    return call | about | {"check": call["check"] if check else None}


def manifest_of(needs: Json, tvm: str) -> dict[str, Any]:
    """Return the manifest of a batch without calls, which a session needs."""
    return {
        "format": run_batch.FORMAT,
        "batch": "search",
        "tvm": tvm,
        "needs": needs,
        "like": None,
        "files": {},
        "calls": [],
    }
