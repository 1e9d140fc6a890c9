"""Describes this host's CPUs and what slows them down: governor, CPU quota, turbo and power settings."""

import ctypes
import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypedDict

from mallorn.workers.sandbox.seccomp import AARCH64
from mallorn.workers.subprocesses.cgroups import cpu_quota

FREQUENCY: Final = Path("/sys/devices/system/cpu/cpu0/cpufreq")
#: File -> its content if the clock may not exceed its base rate.
TURBO: Final = {
    Path("/sys/devices/system/cpu/intel_pstate/no_turbo"): "1",
    Path("/sys/devices/system/cpu/cpufreq/boost"): "0",
}
SUPPLIES: Final = Path("/sys/class/power_supply")
SAVES: Final = ("power", "balance_power")
# Features of an AArch64 CPU by the kernel's names: an entry of the auxiliary vector
# (16 is AT_HWCAP, 26 AT_HWCAP2) and its bit.
_HWCAPS: Final = {
    "asimd": (16, 1), "aes": (16, 3), "sha2": (16, 6), "crc32": (16, 7), "atomics": (16, 8),
    "asimdhp": (16, 10), "asimdrdm": (16, 12), "fcma": (16, 14), "lrcpc": (16, 15),
    "sha3": (16, 17), "asimddp": (16, 20), "sve": (16, 22), "asimdfhm": (16, 23),
    "sve2": (26, 1), "i8mm": (26, 13), "bf16": (26, 14), "sme": (26, 23),
}  # fmt: skip

IDENTITY_FIELDS: Final = (
    "vendor_id", "cpu family", "model", "model name", "stepping", "cache size",
    "CPU implementer", "CPU part", "CPU variant",
)  # fmt: skip


class CpuFacts(TypedDict):
    """Facts about a host's CPUs; hosts with comparable times share `host_class`."""

    host_class: str
    cpu_model: str
    cores: int
    governor: str
    machine: str
    hostname: str


def describe_cpus(cpu: Mapping[str, str], cores: int) -> CpuFacts:
    """Describe this process's `cores` CPUs; `cpu` has the fields of the first."""
    facts = {name: cpu[name] for name in IDENTITY_FIELDS if name in cpu}
    facts |= {"cores": str(cores), "governor": read_cpu_governor()}
    model = cpu.get("model name") or cpu.get("CPU part") or os.uname().machine
    slug = re.sub(r"[^a-z0-9]+", "-", model.lower()).strip("-")[:40]
    text = ";".join(f"{name}={facts[name]}" for name in sorted(facts))
    host_class = f"{slug}-{cores}c-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    return {
        "host_class": host_class + find_cpu_speed_limits(),
        "cpu_model": model,
        "cores": cores,
        "governor": facts["governor"],
        "machine": os.uname().machine,
        "hostname": os.uname().nodename,
    }


def cpu_info(text: str | None = None) -> dict[str, str]:
    """Return the first processor's fields from `text`, by default /proc/cpuinfo.

    On AArch64, `Features` are those that the kernel grants this process: an emulator of
    processes shows its host's /proc/cpuinfo, whose fields are left out.
    """
    is_arm = text is None and os.uname().machine == AARCH64
    text = Path("/proc/cpuinfo").read_text() if text is None else text
    pairs = (line.partition(":") for line in text.split("\n\n")[0].splitlines())
    fields = {name.strip(): value.strip() for name, _, value in pairs}
    if not is_arm:
        return fields
    if "CPU implementer" not in fields:
        fields = {}
    features = [name for name, place in _HWCAPS.items() if _has_hwcap(*place)]
    return {**fields, "Features": " ".join(features)}


def _has_hwcap(entry: int, bit: int) -> bool:
    read = ctypes.CDLL(None).getauxval
    read.restype, read.argtypes = ctypes.c_ulong, [ctypes.c_ulong]
    return bool(read(entry) >> bit & 1)


def read_cpu_governor() -> str:
    """Return the kernel's CPU frequency governor; `unknown` if there is none."""
    return _read_word(FREQUENCY / "scaling_governor") or "unknown"


def find_cpu_speed_limits() -> str:
    """Return what slows this host's CPUs now, such as `+quota1.5+battery`, or nothing."""
    words = []
    quota = cpu_quota()
    if quota is not None and quota < len(os.sched_getaffinity(0)):
        words.append(f"quota{quota:g}")
    if (preference := _read_word(FREQUENCY / "energy_performance_preference")) in SAVES:
        words.append(f"epp-{preference}")
    if any(_read_word(file) == slow for file, slow in TURBO.items()):
        words.append("noturbo")
    # Batteries of peripherals, such as a mouse, have the scope Device.
    supplies = [supply for supply in SUPPLIES.glob("*") if _read_word(supply / "scope") != "Device"]
    states = [(_read_word(supply / "type"), _read_word(supply / "status")) for supply in supplies]
    if ("Battery", "Discharging") in states:
        words.append("battery")
    return "".join(f"+{word}" for word in words)


def _read_word(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:  # the file is missing, or its driver does not answer
        return ""
