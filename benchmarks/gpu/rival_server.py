"""Time a task's library whenever asked: python -m benchmarks.gpu.rival_server KIND TASK LOCK

Each line of input asks for bursts of the call whose arguments `ARGS` describes; a JSON line answers.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.gpu.arithmetic import arithmetic_of
from benchmarks.gpu.gpu_turns import hold_gpu
from benchmarks.gpu.kernel_times import BURST_US, BURSTS, MOST_CALLS
from benchmarks.gpu.tasks import BY_NAME
from mallorn.stack.supervised_process import DieWithParent

NO_TORCH: Final = "torch is not installed"


class Rival:
    """Client of a process that times a library's bursts."""

    def __init__(self, kind: str, task: str, lock: Path, environment: Mapping[str, str]) -> None:
        command = [sys.executable, "-m", "benchmarks.gpu.rival_server", kind, task, str(lock)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)

    def bursts_us(self, call: Mapping[str, Any]) -> dict[str, Any]:
        """Return the library's name and the mean times of its bursts, or what is missing."""
        questions, answers = self._process.stdin, self._process.stdout
        if questions is None or answers is None or self._process.poll() is not None:
            return {"missing": "the library's process ended"}
        questions.write(json.dumps({"args": call["args"], "cold": call["cold"]}) + "\n")
        questions.flush()
        line = answers.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"missing": "the library's process ended"}
        return answer

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def main() -> None:
    """Answer until the input ends."""
    DieWithParent(signal.SIGKILL, os.getppid())()
    kind, task, lock = sys.argv[1], BY_NAME[sys.argv[2]], Path(sys.argv[3])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of libraries must not mix with answers
    rival: tuple[str, Any] | None = None
    arithmetic, number = arithmetic_of(kind), 0
    for line in sys.stdin:
        request = json.loads(line)
        try:
            with hold_gpu(lock):
                if not number:
                    rival = arithmetic.rival(task, arithmetic.inputs(request["args"][:-1]))
                    once_us = 1.0 if rival is None else arithmetic.times_us(rival[1], 1, request["cold"])
                    number = int(min(MOST_CALLS, max(1, BURST_US // max(once_us, 1.0))))
                if rival is None:
                    answer: dict[str, Any] = {"missing": NO_TORCH}
                else:
                    call, cold = rival[1], request["cold"]
                    bursts = [round(arithmetic.times_us(call, number, cold), 3) for _ in range(BURSTS)]
                    answer = {"library": rival[0], "us": bursts}
        except Exception as error:
            answer = {"missing": f"{type(error).__name__}: {error}"[:300]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
