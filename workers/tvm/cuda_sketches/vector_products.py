"""Products with a vector or with at most 8 rows, whose large operand is read once from memory.

Operands may be decoded from integers of few bits: their producers are inlined, and the packed
integers are read as vectors.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

from mallorn.workers.tvm.cuda_sketches.blocks import REFUSED, describe
from mallorn.workers.tvm.cuda_sketches.thread_sums import ThreadSum, normalize, share_columns, share_rows

KIND: Final = "vector product"
_MOST_ROWS: Final = 8
_SUMS_OF_A_THREAD: Final = (1, 2, 4)


def schedules(module: Any, _target: Any) -> Iterator[Any]:
    """Yield schedules with open choices if the program is a product with few rows."""
    yield from schedules_of_sums(module, KIND, most_narrow=_MOST_ROWS, is_product=True)


def schedules_of_sums(module: Any, kind: str, *, most_narrow: int, is_product: bool) -> Iterator[Any]:
    """Yield schedules of a program's only sum, by the order of its terms in memory."""
    for own in _SUMS_OF_A_THREAD:
        with suppress(*REFUSED):
            work = normalize(module, most_narrow)
            if work is None or (work.reads > 1) != is_product:
                return
            if not work.is_depth_innermost:
                yield _describe(work, share_columns(work), kind)
                return
            if work.sums % own == 0:
                yield _describe(work, share_rows(work, own), kind, own=own)


def _describe(work: ThreadSum, choices: Sequence[str], kind: str, **facts: int) -> Any:
    return describe(
        work.schedule,
        kind,
        choices,
        narrow=work.narrow,
        vector=work.vector,
        is_depth_innermost=work.is_depth_innermost,
        **facts,
    )
