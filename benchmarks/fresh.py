"""A service whose database begins empty: what comes along is no part of a comparison."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cli.service.connect_or_start_stack import Connected, connected_stack


@contextmanager
def fresh_stack(data: Path) -> Iterator[Connected]:
    """The stack on a data directory, started where none runs."""
    os.environ["MALLORN_SHIPPED"] = "false"  # the service is a child of this process
    with connected_stack(None, None, data) as stack:
        yield stack
