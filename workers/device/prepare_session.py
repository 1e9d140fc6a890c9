"""Prepares a process that runs candidates: TVM, accelerator, priority and sandbox.

Batches take this module along: neither it nor what it imports needs pydantic.
"""

import ctypes
import os
import resource
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from mallorn.core.errors import InvalidTarget, MallornError
from mallorn.core.targets import Target
from mallorn.workers.device.detect_host import RuntimeFacts, available_cores
from mallorn.workers.device.device_kind import Accelerator, AcceleratorMeter, device_kind
from mallorn.workers.sandbox.sandbox import OFF, SandboxSpec, enter_sandbox
from mallorn.workers.sandbox.sandbox_support import require_sandbox_mode
from mallorn.workers.subprocesses.cgroups import cpu_quota
from mallorn.workers.subprocesses.hide_torch import hide_torch

_M_PERTURB: Final = -6  # glibc's name for the option
# In all bytes: 3.4e38 as float32, NaN as float16, an index far out of bounds.
_HUGE: Final = 0x7F
HIGHEST_PRIORITY: Final = -20
# If the kernel groups processes by session, priorities only count in the group, which has its own.
GROUP: Final = Path("/proc/self/autogroup")
# Microseconds of each second that the kernel allows real-time processes; -1: no limit.
REAL_TIME: Final = Path("/proc/sys/kernel/sched_rt_runtime_us")


def set_runtime_environment(target: Target) -> None:
    """Set environment variables for TVM before it is imported: the number of threads, and
    to load only the runtime library. Raises InvalidTarget if the target needs more cores
    than this process may use, MallornError if TVM is already imported."""
    cores = available_cores()
    if target.runs_on_cores and target.num_cores > cores:
        raise InvalidTarget(
            f"the target has {target.num_cores} cores, but this process may use {cores}",
            hint="mallorn device --target local",
        )
    if "tvm" in sys.modules:
        raise MallornError(
            "TVM was imported before its threads were set", hint="run `mallorn device` by itself"
        )
    threads = target.num_cores if target.runs_on_cores else cores
    os.environ["TVM_NUM_THREADS"] = str(threads)
    if threads < (os.cpu_count() or 1):
        # TVM binds threads to the machine's first processors, even if this process may not
        # use them or another process uses them already.
        os.environ.setdefault("TVM_BIND_THREADS", "0")
    os.environ.setdefault("TVM_USE_RUNTIME_LIB", "1")
    hide_torch()
    # This process forks for every session, so it must stay single-threaded.
    os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"


def prepare_session(
    target: Target, uuid: str, folder: Path, paths: Iterable[tuple[str, int]], sandbox: str
) -> tuple[bool, AcceleratorMeter | None, str]:
    """Prepare this process for candidates of a target, and enter the sandbox, in which it may
    write to `folder` and use `paths`, each with its rights. Return whether it has priority
    over other programs, the meter of its accelerator, and the sandbox's level.

    Call this before there is a second thread, and before anything is computed on the
    accelerator. Raises HostFault if that cannot be used, NoSandbox if the mode `sandbox`
    requires more than this host supports.
    """
    poison_fresh_memory()
    kind = device_kind(target)
    kind.load_runtime()
    meter = kind.meter(uuid)
    is_raised = target.runs_on_cores and raise_priority()  # the sandbox forbids it
    for limit in (resource.RLIMIT_NICE, resource.RLIMIT_RTPRIO):  # no candidate raises it more
        resource.setrlimit(limit, (0, 0))
    if sandbox == OFF:
        return is_raised, meter, OFF
    others = *kind.paths(uuid), *paths
    level = enter_sandbox(SandboxSpec(folder, drives_gpu=kind.drives_gpu, others=others))
    return is_raised, meter, require_sandbox_mode(level, sandbox)


def raise_priority(group: Path = GROUP, real_time: Path = REAL_TIME) -> bool:
    """Raise the priority of this process and its later threads; return whether that worked.

    Timed code needs processors as soon as it is ready; with equal priority for others,
    times are wrong. The process becomes real-time unless the kernel would leave no time for
    others, or a CPU quota is set, which would not bind the process.
    """
    with suppress(OSError, ValueError):
        if int(real_time.read_text()) >= 0 and cpu_quota() is None:
            priority = os.sched_param(os.sched_get_priority_min(os.SCHED_RR))
            os.sched_setscheduler(0, os.SCHED_RR, priority)
            return True
    try:
        os.setpriority(os.PRIO_PROCESS, 0, HIGHEST_PRIORITY)
    except PermissionError:
        return False
    with suppress(OSError):  # this kernel does not group processes
        group.write_text(str(HIGHEST_PRIORITY))
    return True


def poison_fresh_memory() -> None:
    """Fill memory with an unusual byte when it is allocated, if this process's C library
    can. Fresh memory is mostly zero: a program that reads memory that it never wrote would
    pass here and fail in a model. TVM's ``reverse_compute_at`` of a padding makes them."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_PERTURB, _HUGE ^ 0xFF)  # allocated memory gets the complement


def runtime_facts(
    target: Target, accelerator: Accelerator | None = None, meter: AcceleratorMeter | None = None
) -> RuntimeFacts:
    """Describe TVM's runtime in this process. Also starts its thread pool, and its use of
    an accelerator. Raises HostFault if that cannot be used."""
    import tvm
    from tvm.runtime import num_threads

    facts: RuntimeFacts = {"tvm_version": str(tvm.__version__), "threads": int(num_threads())}
    if accelerator is not None:
        kind = device_kind(target)
        meter = meter or kind.meter(accelerator.uuid)
        facts["gpu_power_limit"] = "" if meter is None else meter.power_limit()
        facts["gpu_index"], facts["gpu_uuid"] = accelerator.index, accelerator.uuid
        facts["gpu_memory_bytes"], facts["gpu_driver"] = accelerator.memory_bytes, accelerator.driver
        kind.load_runtime()
    if not target.runs_on_cores:
        device = tvm.device(target.kind, 0)
        facts["accelerator"] = str(device.device_name) if device.exist else ""
    return facts
