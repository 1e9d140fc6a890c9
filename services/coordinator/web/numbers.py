"""The largest numbers that columns hold: what is larger is refused, and not the database's to fail at."""

from typing import Final

MAX_INT: Final = 2**31 - 1  # also a seed of TVM
MAX_BIG_INT: Final = 2**63 - 1
