"""Escapes control characters in untrusted text that is printed on a terminal."""

import re
from typing import Final

# All but newline and tab, and the characters that change the direction of a text.
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def escape_control_characters(text: str) -> str:
    """Return a text that cannot move the cursor, set the title or hide words of a terminal."""
    return _CONTROL.sub(lambda match: ascii(match[0])[1:-1], text)
