"""Fills fresh memory with nonsense, so that memory which nobody wrote never passes for a result.

Fresh memory is mostly zero: a program that reads what it never wrote would be right here and wrong
in a model. TVM's `reverse_compute_at` of a padding makes such programs.
"""

import ctypes
from typing import Final

_M_PERTURB: Final = -6  # glibc's name for the option
# In all bytes: 3.4e38 in 32 bits, no number in 16, an index far out of bounds.
_HUGE: Final = 0x7F


def poison_fresh_memory() -> None:
    """From now on, in this process, where its C library can."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_PERTURB, _HUGE ^ 0xFF)  # what is allocated gets the complement
