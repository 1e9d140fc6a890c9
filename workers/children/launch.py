"""First code of every child: binds its life to the parent and its memory to the limit, then runs the module.

python -P -m workers.children.launch MODULE PARENT_PID
"""

import ctypes
import faulthandler
import os
import resource
import runpy
import signal
import sys

MEMORY_VARIABLE = "MALLORN_CHILD_ADDRESS_SPACE"
_PR_SET_PDEATHSIG = 1


def die_with_parent(parent_pid: int) -> None:
    """Have the kernel kill this process when the thread that started it ends."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:  # it died before the line above
        os._exit(1)


def limit_memory() -> None:
    """Bound the address space, where the environment asks for it."""
    limit = os.environ.get(MEMORY_VARIABLE)
    if limit:
        resource.setrlimit(resource.RLIMIT_AS, (int(limit), int(limit)))


def main() -> None:
    module, parent_pid = sys.argv[1], int(sys.argv[2])
    die_with_parent(parent_pid)
    limit_memory()
    faulthandler.enable()
    sys.argv = [module]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
