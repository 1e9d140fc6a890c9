"""Helpers that format a share in percent, and find a command in an error's hint."""

import re
from typing import Final

# A line that begins so is a command.
PROGRAMS: Final = ("mallorn ", "pip ", "python ", "less ", "df ", "ls ", "mkdir ")
_QUOTED: Final = re.compile(r"`((?:mallorn|pip|python)\b[^`]*)`")


def percent(share: float, digits: int = 0) -> str:
    """Format a share in percent: `0.938` as `94 %`."""
    return f"{share * 100:.{digits}f} %"


def command_in(text: str) -> str:
    """Return the first command in back quotes or at the start of a line; empty if none."""
    if quoted := _QUOTED.search(text):
        return quoted.group(1)
    lines = (line.strip() for line in text.splitlines())
    return next((line.partition("   (")[0] for line in lines if line.startswith(PROGRAMS)), "")
