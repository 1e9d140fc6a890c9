"""Products with a vector or with at most 8 rows, whose large operand is read once from memory.

Operands may be decoded from integers of few bits: their producers are inlined, and the
packed integers are read as vectors.
"""

from collections.abc import Iterator
from typing import Any, Final

from mallorn.kinds.cuda.sketches.thread_sums import schedules_of_sums

KIND: Final = "vector product"
_MOST_ROWS: Final = 8


def schedules(module: Any, _target: Any) -> Iterator[Any]:
    """Yield schedules with open choices if the program is a product with few rows."""
    yield from schedules_of_sums(module, KIND, most_narrow=_MOST_ROWS, is_product=True)
