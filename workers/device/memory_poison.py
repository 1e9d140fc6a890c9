"""Fills fresh memory with nonsense, so that memory which nobody wrote never passes for a result.

Fresh memory is mostly zero, and a program that reads what it never wrote, a border say, would be right here
and wrong in a model. Schedules that make such programs exist: TVM's `reverse_compute_at` of a padding does.
"""

import ctypes
from typing import Final

_M_PERTURB: Final = -6  # glibc's name for the option
_HUGE: Final = (
    0x7F  # in all bytes: 3.4e38 in 32 bits or as bfloat16, no number in 16, an index far out of bounds
)


def poison_fresh_memory() -> None:
    """From now on, in this process and where its C library can; costs nothing once memory is allocated."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_PERTURB, _HUGE ^ 0xFF)  # what is allocated gets the complement
