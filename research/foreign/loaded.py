"""What became of a log."""

from dataclasses import dataclass


@dataclass(slots=True)
class Loaded:
    """What became of the lines of some logs."""

    added: int = 0
    known: int = 0
    bad: int = 0
