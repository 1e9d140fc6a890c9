"""Reads server-sent events."""

import json
from collections.abc import Iterable, Iterator
from typing import Any


def parse_events(lines: Iterable[str]) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Id, kind and payload of each complete event, without comments (heartbeats) and a torn last event."""
    fields: dict[str, str] = {}
    for line in lines:
        if line.startswith(":"):
            continue
        if line:
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
        elif "data" in fields:
            yield int(fields["id"]), fields.get("event", "message"), json.loads(fields["data"])
            fields = {}
