"""Schedules as people read them."""

from typing import Any

from workers.tvm.database import replay
from workers.tvm.programs import parse_module


def scripts(tir: str, trace: str) -> dict[str, str]:
    """A program before and after its full trace, and the trace, as TVMScript. Raises one of BROKEN."""
    mod = parse_module(tir)
    schedule = replay(mod, trace)
    return {
        "original": _script(mod),
        "scheduled": _script(schedule.mod),
        "trace": "\n".join(schedule.trace.as_python()),
    }


def _script(mod: Any) -> str:
    """To be read, not parsed: extents are 64 bits wide, and `T.int64(4)` for every 4 hides the loops."""
    return str(mod.script(int_dtype="int64", verbose_expr=False))
