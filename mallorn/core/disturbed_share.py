"""The rule that makes a disturbed time an upper bound; run_batch.py has it, too."""

from typing import Final

#: The share of a timing in which its processors were others': more than this makes it a bound and no time.
QUIET_SHARE: Final = 0.05


def is_disturbed(share: float | None) -> bool:
    """Whether a time with this share is only an upper bound; one of which nothing is known is believed."""
    return share is not None and share > QUIET_SHARE
