"""Pieces of text for people: shares in percent, and the command that a reason or a hint names."""

import re
from typing import Final

# What a line begins with that is a command as it stands.
PROGRAMS: Final = ("mallorn ", "pip ", "python ", "less ", "df ", "ls ", "mkdir ")
_QUOTED: Final = re.compile(r"`((?:mallorn|pip|python)\b[^`]*)`")


def percent(share: float, digits: int = 0) -> str:
    """`0.938` as `94 %`."""
    return f"{share * 100:.{digits}f} %"


def command_in(text: str) -> str:
    """The first command that a text names, in back quotes or as the begin of a line; empty: none."""
    if quoted := _QUOTED.search(text):
        return quoted.group(1)
    lines = (line.strip() for line in text.splitlines())
    return next((line.partition("   (")[0] for line in lines if line.startswith(PROGRAMS)), "")
