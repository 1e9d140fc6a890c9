"""Reads what slows down this host's CPUs: governor, CPU quota, turbo and power settings."""

import os
from pathlib import Path
from typing import Final

from mallorn.workers.subprocesses.cgroups import cpu_quota

FREQUENCY: Final = Path("/sys/devices/system/cpu/cpu0/cpufreq")
#: File -> its content if the clock may not exceed its base rate.
TURBO: Final = {
    Path("/sys/devices/system/cpu/intel_pstate/no_turbo"): "1",
    Path("/sys/devices/system/cpu/cpufreq/boost"): "0",
}
SUPPLIES: Final = Path("/sys/class/power_supply")
SAVES: Final = ("power", "balance_power")


def read_cpu_governor() -> str:
    """Return the kernel's CPU frequency governor; `unknown` if there is none."""
    return _read_word(FREQUENCY / "scaling_governor") or "unknown"


def find_cpu_speed_limits() -> str:
    """Return what slows down this host's CPUs now, for example `+quota1.5+battery`; empty
    if nothing does."""
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
