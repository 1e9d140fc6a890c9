"""What a device measures under: its CPUs and its priority, which untrusted code may change."""

import os
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Self

import psutil

from mallorn.core.errors import HostFault

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
        if (current := self.read()) == self:
            return []
        change = f"changed {self} to {current}"
        with suppress(OSError):  # compared below
            os.sched_setaffinity(0, self.cpus)
            os.sched_setscheduler(0, self.policy, os.sched_param(self.priority))
            os.setpriority(os.PRIO_PROCESS, 0, self.nice)
        if self.read() != self:
            message = f"this device unregisters: a program {change}, and it cannot change it back"
            raise HostFault(message, hint="mallorn device")
        return [change]


def kill_children() -> list[str]:
    """Kill all children of this process; return their names, in words. Raises HostFault if one
    does not end."""
    names: list[str] = []
    while children := psutil.Process().children():
        for child in children:
            child.kill()
        if alive := psutil.wait_procs(children, _KILLED_SEC)[1]:
            raise HostFault(f"this device unregisters: {alive[0]} of a session does not end", hint="ps")
        names += [f"left process {child.pid} running" for child in children]
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
