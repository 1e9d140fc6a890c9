"""A service with an empty database, for comparisons without the bundled measurements."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mallorn.client.local_service import Connected, connected_stack


@contextmanager
def fresh_stack(data: Path) -> Iterator[Connected]:
    """Connect to the stack of a data directory; start one if none runs."""
    os.environ["MALLORN_SHIPPED"] = "false"  # the service is a child of this process
    with connected_stack(None, None, data) as stack:
        yield stack
