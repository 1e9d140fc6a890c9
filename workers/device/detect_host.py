"""Detects the target `local`, and this host's class, within which times are comparable."""

import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Set
from functools import lru_cache
from pathlib import Path
from typing import Final, NotRequired, TypedDict

from mallorn.core.errors import InvalidTarget, Unavailable
from mallorn.core.host_id import host_id
from mallorn.core.installation import python_path
from mallorn.core.targets import Target, parse_target
from mallorn.graphc.export.cpu_features import ARM, FIELDS, X86
from mallorn.workers.device.cpu_speed_limits import CpuFacts, cpu_info, describe_cpus
from mallorn.workers.host.host_lock import lock_identity
from mallorn.workers.sandbox.sandbox import allowed_environment
from mallorn.workers.sandbox.seccomp import AARCH64, X86_64
from mallorn.workers.sandbox.syscall import syscall
from mallorn.workers.subprocesses.cgroups import cpu_quota

LLVM_TIMEOUT_SEC = 120
LLVM_CPU_PROGRAM = """
from tvm.target import Target, codegen
cpu = str(codegen.llvm_get_system_cpu())
print(cpu, *codegen.llvm_get_cpu_features(Target({"kind": "llvm", "mcpu": cpu})))
"""
HIDE_TORCH = "from mallorn.workers.subprocesses.hide_torch import hide_torch\nhide_torch()\n"
SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
X86_LEVELS = (
    ("x86-64-v4", {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}),
    ("x86-64-v3", {"avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"}),
    ("x86-64-v2", {"cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"}),
)


class HostFacts(CpuFacts):
    host_id: str  # unique


class RuntimeFacts(TypedDict):
    """Facts about TVM's runtime and the GPU that it drives."""

    tvm_version: str
    threads: int
    accelerator: NotRequired[str]  # the name of the GPU; empty if there is none
    gpu_index: NotRequired[int]  # among the visible GPUs of the host
    gpu_uuid: NotRequired[str]
    gpu_memory_bytes: NotRequired[int]
    gpu_driver: NotRequired[str]
    gpu_power_limit: NotRequired[str]  # as `+300W`; empty if it is the GPU's default


class Identity(HostFacts, RuntimeFacts):
    name: str
    target: str
    address: str
    is_local: bool
    sandbox: str  # of its sessions: `full`, `off`, or what is missing
    lock_file: str  # `lock_identity` of its process
    disturbed: dict[str, float] | None  # DisturbedInterval: what it measures under was changed


def read_host_facts() -> HostFacts:
    """Return present facts about this host; times are comparable within a `host_class`."""
    return {"host_id": host_id(), **describe_cpus(_cached_cpu_info(), available_cores())}


def refresh_host_facts(identity: Identity) -> Identity:
    """Return `identity` with this host's present governor, quota, power and locks."""
    accelerator = identity.get("accelerator", "").replace(" ", "-")
    present: Identity = {**identity, **read_host_facts(), "lock_file": lock_identity()}
    if accelerator:
        present["host_class"] += f"+{accelerator}"
    if driver := identity.get("gpu_driver"):
        present["host_class"] += f"+{driver}{identity.get('gpu_power_limit', '')}"
    return present


def detect_target() -> Target:
    """Return this host's CPU target, with as many cores as this process may use."""
    cpu = cpu_info()
    machine = os.uname().machine
    flags = usable_flags(cpu, FIELDS.get(machine, "flags"))
    # The program fails if only TVM's runtime is installed; LLVM calls an unknown CPU "generic".
    mcpu, *llvm_features = run_with_tvm(LLVM_CPU_PROGRAM).stdout.split() or ["generic"]
    features = set(llvm_features)
    # A hypervisor may hide features that LLVM expects of this CPU.
    level_flags = set().union(*(flags_needed for _, flags_needed in X86_LEVELS))
    if mcpu == "generic" or (flags and level_flags & features - flags):
        mcpu, features = _x86_feature_level(cpu, machine), set()
    compared = ARM if machine == AARCH64 else PRODUCTS
    mattr = feature_differences(flags, features, compared) if flags else []
    options: dict[str, object] = {"mattr": mattr} if mattr else {}
    if machine != X86_64:  # workers on another machine compile for it, too
        options["mtriple"] = f"{machine}-linux-gnu"
    return parse_target({"kind": "llvm", "mcpu": mcpu, "num-cores": available_cores(), **options})


def available_cores() -> int:
    """Return the number of CPUs that this process may run on, limited by its cgroup's quota."""
    cpus = len(os.sched_getaffinity(0))
    quota = cpu_quota()
    return cpus if quota is None else max(1, min(cpus, int(quota)))


def physical_cores() -> int:
    """Return the number of physical cores of this process's CPUs: two may share a core."""
    files = [Path(SIBLINGS.format(cpu)) for cpu in os.sched_getaffinity(0)]
    return len({file.read_text() if file.exists() else str(file) for file in files})


@lru_cache(maxsize=1)
def _cached_cpu_info() -> dict[str, str]:
    # Cached: it never changes, and reading it makes the kernel interrupt every processor.
    return cpu_info()


def run_with_tvm(program: str, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run a Python program in a child process that loads all of TVM, not only its runtime.
    A crash of TVM ends only the child. Raises Unavailable on timeout."""
    env = {name: value for name, value in allowed_environment().items() if name != "TVM_USE_RUNTIME_LIB"}
    env["PYTHONPATH"] = python_path(env)
    command = [sys.executable, "-P", "-c", HIDE_TORCH + program, *words]
    try:
        return subprocess.run(
            command, env=env, capture_output=True, text=True, timeout=LLVM_TIMEOUT_SEC, check=False
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"TVM did not answer within {LLVM_TIMEOUT_SEC} s", hint="uptime") from None


def _x86_feature_level(cpu: Mapping[str, str], machine: str) -> str:
    if machine != "x86_64":
        return "generic"
    flags = set(cpu.get("flags", "").split())
    for level, flags_needed in X86_LEVELS:
        if flags_needed <= flags:
            return level
    raise InvalidTarget(
        "this CPU is older than x86-64-v2", hint='name the target: --target \'{"kind":"llvm",...}\''
    )


#: Instructions for products of narrow numbers: LLVM's feature name -> the kernel's flag.
PRODUCTS: Final = {name: X86[name] for name in ("avx512bf16", "amx-tile", "amx-int8", "amx-bf16")}
_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _TILE_DATA = 158, 0x1023, 18


def usable_flags(cpu: Mapping[str, str], field: str = "flags") -> set[str]:
    """Return the CPU's flags, without AMX's if the kernel refuses this process AMX."""
    flags = set(cpu.get(field, "").split())
    tiles = {flag for flag in flags if flag.startswith("amx_")}
    return flags - tiles if tiles and not request_amx_tiles() else flags


@lru_cache(maxsize=1)
def request_amx_tiles() -> bool:
    """Request AMX tiles from the kernel and return whether this process may use them."""
    if platform.machine() != X86_64:
        return False
    try:
        return syscall(_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _TILE_DATA) == 0
    except OSError:
        return False


def feature_differences(
    flags: Set[str], features: Set[str], compared: Mapping[str, str] = PRODUCTS
) -> list[str]:
    """Return `mattr` entries that correct LLVM's `features` of a CPU by the kernel's
    `flags`; only instructions in `compared` are."""
    present = {name for name, flag in compared.items() if flag in flags}
    return [f"{'+' if n in present else '-'}{n}" for n in compared if (n in present) != (n in features)]
