"""Entry point of a child: ties its life to the parent, enters the sandbox, runs a module.

python -P -m mallorn.workers.subprocesses.child_main PARENT_PID LAUNCH_SPEC_AS_JSON
"""

import ctypes
import faulthandler
import json
import os
import resource
import runpy
import signal
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self

from mallorn.workers.sandbox.sandbox import OFF, SandboxSpec, enter_sandbox
from mallorn.workers.sandbox.sandbox_support import require_sandbox_mode
from mallorn.workers.subprocesses.hide_torch import hide_torch

#: Environment variable that tells the module which sandbox level was reached.
REACHED_VARIABLE: Final = "MALLORN_CHILD_SANDBOX"
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """The child's command line. Every user of the host can read it, so it holds no secrets."""

    module: str
    walls: SandboxSpec
    mode: str  # a mode of Settings.sandbox
    memory_bytes: int | None = None

    @property
    def text(self) -> str:
        return json.dumps(asdict(self), default=str)

    @classmethod
    def from_text(cls, text: str) -> Self:
        fields = json.loads(text)
        room = fields["walls"].pop("room")
        walls = SandboxSpec(room=Path(room) if room else None, **fields.pop("walls"))
        return cls(walls=walls, **fields)


def die_with_parent(parent_pid: int) -> None:
    """Have the kernel kill this process when the thread that started it ends."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:  # the parent died before the line above
        os._exit(1)


def main() -> None:
    parent_pid, orders = int(sys.argv[1]), LaunchSpec.from_text(sys.argv[2])
    die_with_parent(parent_pid)
    if orders.memory_bytes:
        resource.setrlimit(resource.RLIMIT_AS, (orders.memory_bytes, orders.memory_bytes))
    faulthandler.enable()
    os.environ[REACHED_VARIABLE] = (
        OFF if orders.mode == OFF else require_sandbox_mode(enter_sandbox(orders.walls), orders.mode)
    )
    hide_torch()
    sys.argv = [orders.module]
    runpy.run_module(orders.module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
