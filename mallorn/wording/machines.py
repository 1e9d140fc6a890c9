"""What a device's machine computes and moves, and how far the walls close around what it runs, in words."""

from typing import Final

from mallorn.core.values.fleet import DeviceMachine
from mallorn.core.values.machine import Cache, Machine

KILO: Final = 1024
PARTLY: Final = "partly"
_WORDS: Final = ("full", "off")


def machine_words(found: DeviceMachine | None) -> str:
    """What was measured, or why nothing was."""
    if found is None:
        return "not measured yet"
    if found.machine is None:
        return f"not measured: {found.why}"
    return "; ".join(_parts(found.machine))


def _parts(machine: Machine) -> list[str]:
    peaks = ", ".join(f"{name} {rate:.0f}" for name, rate in machine.gflops.items())
    levels = ", ".join(_level(cache) for cache in machine.caches)
    return [
        f"GFLOP/s on {machine.cores} cores: {peaks}",
        f"vectors of {machine.lanes}, {machine.in_flight} to {machine.registers} summed at once",
        f"caches: {levels}",
        f"memory: {machine.memory_gbytes_per_sec:.3g} GB/s",
        f"a parallel loop starts in {machine.fork_us:.2g} us",
    ]


def _level(cache: Cache) -> str:
    size = cache.bytes / KILO
    held = f"{size:.0f} KB" if size < KILO else f"{size / KILO:.0f} MB"
    return f"{held} at {cache.gbytes_per_sec:.0f} GB/s"


def sandbox_word(told: str) -> str:
    """`full`, `off`, `partly`, or a dash where nothing was said."""
    if not told:
        return "-"
    return told if told in _WORDS else PARTLY
