"""What a device measures under: its CPUs and its priority, which untrusted code may change."""

import os
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Final, Self

import psutil

from mallorn.core.errors import HostFault
from mallorn.workers.sandbox.syscall import prctl

_PR_SET_CHILD_SUBREAPER: Final = 36
_KILLED_SEC: Final = 10.0


@dataclass(frozen=True)
class MeasuringConditions:
    """CPUs, scheduling policy and priority of a device's process, which sessions inherit."""

    cpus: tuple[int, ...]
    policy: int
    priority: int
    nice: int

    @classmethod
    def read(cls) -> Self:
        cpus, priority = tuple(sorted(os.sched_getaffinity(0))), os.sched_getparam(0).sched_priority
        return cls(cpus, os.sched_getscheduler(0), priority, os.getpriority(os.PRIO_PROCESS, 0))

    def restore(self) -> list[str]:
        """Set this process back to these conditions; return what had changed, in words. Raises
        HostFault if the kernel refuses."""
        own, found = asdict(self), asdict(self.read())
        changes = [
            f"its {name} from {own[name]} to {found[name]}" for name in own if own[name] != found[name]
        ]
        if changes:
            with suppress(OSError):  # compared below
                os.sched_setaffinity(0, self.cpus)
                os.sched_setscheduler(0, self.policy, os.sched_param(self.priority))
                os.setpriority(os.PRIO_PROCESS, 0, self.nice)
            if self.read() != self:
                words = (
                    f"this device unregisters: a program {', '.join(changes)}, and it cannot change it back"
                )
                raise HostFault(words, hint="mallorn device")
        return changes


def adopt_orphans() -> set[int]:
    """Become the parent of processes whose parent among this process's descendants exits;
    return the pids of the children so far."""
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    return {child.pid for child in psutil.Process().children()}


def kill_children(known: Collection[int]) -> list[str]:
    """Kill all children but the `known` ones; return their names, in words. Raises HostFault
    if one does not end."""
    names: list[str] = []
    while left := [child for child in psutil.Process().children() if child.pid not in known]:
        for child in left:
            child.kill()
        _, alive = psutil.wait_procs(left, _KILLED_SEC)
        if alive:
            raise HostFault(
                f"this device unregisters: process {alive[0].pid} of a session does not end", hint="ps"
            )
        names += [f"left process {child.pid} running" for child in left]
    return names


def thread_cpus() -> list[list[int]]:
    """Return the CPUs of each of this process's threads, the oldest first."""
    return [sorted(os.sched_getaffinity(thread)) for thread in _threads("self")]


def bind_threads(pid: int, cpus: Sequence[Collection[int]]) -> None:
    """Bind the threads of another process to CPUs, as `thread_cpus` returned them."""
    for thread, thread_cpus in zip(_threads(str(pid)), cpus, strict=False):
        with suppress(OSError):  # the thread has ended, or the CPUs are gone
            os.sched_setaffinity(thread, thread_cpus)


def _threads(pid: str) -> list[int]:
    return sorted(map(int, os.listdir(f"/proc/{pid}/task")))
