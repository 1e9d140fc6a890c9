"""Products with a vector or with at most 8 rows, whose large operand is read once from memory.

Operands may be decoded from integers of few bits: their producers are inlined, and the packed
integers are read as vectors.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from mallorn.workers.tvm.cuda_sketches.blocks import REFUSED, describe
from mallorn.workers.tvm.cuda_sketches.thread_sums import ThreadSum, normalize, share_columns, share_rows

KIND: Final = "vector product"
_MOST_ROWS: Final = 8


def schedules(module: Any, target: Any) -> Iterator[Any]:
    """Yield schedules with open choices if the program is a product with few rows."""
    with suppress(*REFUSED):
        work = normalize(module, _MOST_ROWS)
        if work is not None and work.reads > 1:
            yield schedule_sum(work, KIND)


def schedule_sum(work: ThreadSum, kind: str) -> Any:
    """Return the schedule of a sum, by the order of its terms in memory."""
    choices = share_rows(work) if work.is_depth_innermost else share_columns(work)
    facts = {"narrow": work.narrow, "vector": work.vector, "is_depth_innermost": work.is_depth_innermost}
    return describe(work.schedule, kind, choices, **facts)
