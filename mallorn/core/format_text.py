"""Texts for terminals: shares in percent, commands in hints, escaped control characters."""

import re
from typing import Final

# A line that begins so is a command.
PROGRAMS: Final = ("mallorn ", "pip ", "python ", "less ", "df ", "ls ", "mkdir ")
# All but newline and tab, and the characters that change the direction of a text.
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
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


def escape_control_characters(text: str) -> str:
    """Return a text that cannot move the cursor, set the title or hide words of a terminal."""
    return _CONTROL.sub(lambda match: ascii(match[0])[1:-1], text)
