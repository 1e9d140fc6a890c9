"""Schedules as people read them."""

from typing import Any

from workers.faces.graphs import Scripts
from workers.tvm.database import replay
from workers.tvm.programs import parse_module


def scripts(tir: str, trace: str) -> Scripts:
    """A program before and after its full trace, and the trace, as TVMScript. Raises one of BROKEN."""
    mod = parse_module(tir)
    schedule = replay(mod, trace)
    return Scripts(_script(mod), _script(schedule.mod), "\n".join(schedule.trace.as_python()))


def _script(mod: Any) -> str:
    """For people: extents have 64 bits, and `T.int64(4)` for every 4 would hide the loops."""
    return str(mod.script(int_dtype="int64", verbose_expr=False))
