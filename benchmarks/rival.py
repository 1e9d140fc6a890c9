"""Runs another engine in another interpreter's process, which can be suspended."""

import json
import os
import select
import signal
import subprocess
from pathlib import Path
from typing import Any, Final

from mallorn.workers.interfaces.whole_model_engine import RUN_TIMEOUT_SEC
from mallorn.workers.subprocesses.errors import ChildCrashed, ChildFailed, ChildTimeout

RIVALS: Final = Path(__file__).parent / "rivals"
# Not rivals: the package's own file, their common part, and engines that `mallorn` has itself.
OTHERS: Final = ("__init__", "serving", "onnxruntime_cpu", "mallorn_cpu", "provider_cpu")
NAMES: Final = tuple(sorted(path.stem for path in RIVALS.glob("*.py") if path.stem not in OTHERS))


class Rival:
    """Another engine in a child process, with the methods that interleaved timing needs."""

    def __init__(self, name: str, python: str, **env: str) -> None:
        self._name = name
        self._process = subprocess.Popen(
            [python, str(RIVALS / f"{name}.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | env,
            start_new_session=True,
        )

    def load(self, timeout_sec: float, model: Path, inputs: str, threads: int) -> None:
        """Load a model. Raises ChildCrashed, ChildTimeout or ChildFailed."""
        self._ask(timeout_sec, {"model": str(model), "inputs": inputs, "threads": threads})

    def time_bursts(self, bursts: int, number: int) -> list[float]:
        """Return the median latency of each burst in us. Raises as `load` does."""
        medians_us = self._ask(RUN_TIMEOUT_SEC, {"method": "time_bursts", "bursts": bursts, "number": number})
        return [float(us) for us in medians_us]

    def save_outputs(self, outputs_npz: str) -> int:
        """Run once and write the outputs; return their number."""
        return int(self._ask(RUN_TIMEOUT_SEC, {"method": "save_outputs", "outputs_npz": outputs_npz}))

    def suspend(self) -> None:
        os.killpg(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.killpg(self._process.pid, signal.SIGCONT)

    def kill(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _ask(self, timeout_sec: float, request: dict[str, Any]) -> Any:
        questions, answers = self._process.stdin, self._process.stdout
        assert questions is not None
        assert answers is not None
        try:
            questions.write(json.dumps(request).encode() + b"\n")
            questions.flush()
        except BrokenPipeError:
            raise ChildCrashed(f"{self._name} did not start") from None
        if not select.select([answers], [], [], timeout_sec)[0]:
            self.kill()
            raise ChildTimeout(f"{self._name} took longer than {timeout_sec:g} s")
        line = answers.readline()
        if not line:
            raise ChildCrashed(f"{self._name} ended")
        reply = json.loads(line)
        if "error" in reply:
            raise ChildFailed(self._name, reply["error"])
        return reply["result"]
