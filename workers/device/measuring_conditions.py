"""Conditions under which a device measures: CPUs and priority, which programs may change."""

import logging
import os
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Self

import psutil

from mallorn.core.errors import HostFault
from mallorn.workers.sandbox.syscall import prctl

log = logging.getLogger(__name__)
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
        cpus = tuple(sorted(os.sched_getaffinity(0)))
        policy, priority = os.sched_getscheduler(0), os.sched_getparam(0).sched_priority
        return cls(cpus, policy, priority, os.getpriority(os.PRIO_PROCESS, 0))

    def restore(self) -> list[str]:
        """Set this process back to these conditions; return what had changed, in words.
        Raises HostFault if the kernel refuses."""
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


def adopt_orphans() -> set[int]:
    """Become the parent of descendants whose parent exits; return the pids of the present
    children. A kernel that cannot do it (gVisor's, an emulator of processes) is logged."""
    try:
        prctl(_PR_SET_CHILD_SUBREAPER, 1)
    except OSError as error:
        reason = f"PR_SET_CHILD_SUBREAPER: {error.strerror}"
        log.warning("processes that a session starts may run on after it: %s", reason)
    return {child.pid for child in psutil.Process().children()}


def kill_children(known_pids: Collection[int]) -> list[str]:
    """Kill all children but `known_pids`; name them. Raises HostFault if one stays."""
    names: list[str] = []
    process = psutil.Process()
    while children := [child for child in process.children() if child.pid not in known_pids]:
        for child in children:
            child.kill()
        if alive := psutil.wait_procs(children, _KILLED_SEC)[1]:
            message = f"this device unregisters: {alive[0]} of a session does not end"
            raise HostFault(message, hint="ps")
        names += [f"left process {child.pid} running" for child in children]
    return names


def bind_threads(pid: int, cpus: Sequence[Collection[int]]) -> None:
    """Bind each thread of a process to its CPUs, the oldest thread first."""
    for thread, thread_cpus in zip(list_threads(str(pid)), cpus, strict=False):
        with suppress(OSError):  # the thread has ended, or the CPUs are gone
            os.sched_setaffinity(thread, thread_cpus)


def list_threads(pid: str) -> list[int]:
    """Return the ids of a process's threads, the oldest first."""
    return sorted(map(int, os.listdir(f"/proc/{pid}/task")))
