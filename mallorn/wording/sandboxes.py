"""How far the walls close around what a worker or a device runs, in a word."""

from typing import Final

PARTLY: Final = "partly"
_WORDS: Final = ("full", "off")


def sandbox_word(told: str) -> str:
    """`full`, `off`, `partly`, or a dash where nothing was said."""
    if not told:
        return "-"
    return told if told in _WORDS else PARTLY
