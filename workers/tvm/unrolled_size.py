"""How large candidates come out when their loops are unrolled, beside others of their program.

A body many times as large as usual takes a compiler seconds, and was never seen near its task's best.
"""

from collections import defaultdict, deque
from math import inf
from statistics import median
from typing import Any, Final

import tvm_ffi
from tvm.ir.instrument import pass_instrument
from tvm.tirx import BufferStore

from mallorn.core.errors import InvalidRequest
from mallorn.core.outcomes import NOT_COMPILED

FEWEST: Final = 5  # candidates of a program, before which nothing is usual
KEPT: Final = 64  # all that came last count, those refused too: what a search turns to becomes usual
TOO_LARGE: Final = 8.0
CHEAP: Final = 200  # places; fewer are compiled in no time, however few are usual
UNROLLED: Final = "tirx.UnrollLoop"  # the pass after which a body has its size


class BodyTooLarge(InvalidRequest):
    """Unrolled, the candidate is many times as large as others of its program."""


class CandidateSizes:
    """The sizes of a program's candidates, as this process has seen them."""

    def __init__(self) -> None:
        self._known: deque[int] = deque(maxlen=KEPT)

    def judge(self, size: int) -> None:
        """Raise BodyTooLarge for what is not worth compiling."""
        usual = median(self._known) if len(self._known) >= FEWEST else inf
        self._known.append(size)
        if size > max(CHEAP, TOO_LARGE * usual):
            raise BodyTooLarge(
                f"{NOT_COMPILED}unrolled it writes in {size} places, where {usual:g} are usual"
            )


SIZES: Final = defaultdict[tuple[str, str], CandidateSizes](CandidateSizes)  # by program and target


@pass_instrument
class Watch:
    """Ends the lowering of a body that is too large; `refused` says why."""

    def __init__(self, sizes: CandidateSizes) -> None:
        self._sizes = sizes
        self.refused: BodyTooLarge | None = None

    def run_after_pass(self, module: Any, info: Any) -> None:
        if str(info.name) != UNROLLED:
            return
        try:
            self._sizes.judge(size_of(module))
        except BodyTooLarge as refusal:
            self.refused = refusal
            raise


def size_of(module: Any) -> int:
    """How many stores a module has."""
    found: list[None] = []
    tvm_ffi.structural_walk(module, (BufferStore, lambda _: found.append(None)), order="pre")
    return len(found)
