"""Labels of jobs: `key` or `key=value`; a label without a value has an empty one."""

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Final

from pydantic import Field

from mallorn.core.errors import InvalidRequest

MOST_LABELS: Final = 20  # of a job
KEY_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9._/-]{0,62}"
VALUE_PATTERN: Final = r"[^\x00-\x1f\x7f-\x9f]{0,63}"
LabelKey = Annotated[str, Field(pattern=f"^{KEY_PATTERN}$")]
LabelValue = Annotated[str, Field(pattern=f"^{VALUE_PATTERN}$")]
LabelText = Annotated[str, Field(pattern=f"^{KEY_PATTERN}(={VALUE_PATTERN})?$")]
Labels = Annotated[dict[LabelKey, LabelValue], Field(max_length=MOST_LABELS)]


def format_labels(labels: Mapping[str, str]) -> str:
    """Return labels as a user types them, separated by commas."""
    return ", ".join(f"{key}={value}" if value else key for key, value in labels.items())


def parse_labels(texts: Iterable[str]) -> dict[str, str]:
    """Parse texts such as `team=vision` or ``nightly``. Raises InvalidRequest for a malformed one."""
    labels: dict[str, str] = {}
    for text in texts:
        key, _, value = text.partition("=")
        if not re.fullmatch(KEY_PATTERN, key) or not re.fullmatch(VALUE_PATTERN, value):
            limits = "a key has letters, digits and ._/-, key and value have up to 63 characters"
            raise InvalidRequest(f"{text!r} is no label: {limits}", hint="nightly, or team=vision")
        labels[key] = value
    return labels
