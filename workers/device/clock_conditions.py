"""What sets this host's clock and may change while it runs: none of it is part of the processor."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from workers.subprocesses.cgroups import cpu_quota

FREQUENCY: Final = Path("/sys/devices/system/cpu/cpu0/cpufreq")
#: Each with what it holds where the clock may not be raised.
TURBO: Final = {
    Path("/sys/devices/system/cpu/intel_pstate/no_turbo"): "1",
    Path("/sys/devices/system/cpu/cpufreq/boost"): "0",
}
SUPPLIES: Final = Path("/sys/class/power_supply")
SAVES: Final = ("power", "balance_power")


def governor() -> str:
    """How the kernel sets the clock."""
    return _word(FREQUENCY / "scaling_governor") or "unknown"


def limits() -> str:
    """What keeps this host from what it computes otherwise, as `+quota1.5+battery`; empty on most."""
    return "".join(f"+{word}" for word in _limits())


def _limits() -> Iterator[str]:
    quota = cpu_quota()
    if quota is not None and quota < len(os.sched_getaffinity(0)):
        yield f"quota{quota:g}"
    if (preference := _word(FREQUENCY / "energy_performance_preference")) in SAVES:
        yield f"epp-{preference}"
    if any(_word(file) == slow for file, slow in TURBO.items()):
        yield "noturbo"
    # A mouse has a battery, too, of scope Device.
    own = [supply for supply in SUPPLIES.glob("*") if _word(supply / "scope") != "Device"]
    if any((_word(each / "type"), _word(each / "status")) == ("Battery", "Discharging") for each in own):
        yield "battery"


def _word(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:  # not there, or its driver does not answer
        return ""
