"""Reads server-sent events."""

import json
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from mallorn.core.values.event import KnownEvent, OtherEvent, read_event
from mallorn.http import Json


class LoggedEvent(NamedTuple):
    """Something that happened to a job; `id` counts up without gaps, `payload` is JSON as it was sent."""

    id: int
    kind: str
    payload: Json

    @property
    def told(self) -> KnownEvent | OtherEvent:
        """What happened, one type a kind."""
        return read_event(self.kind, self.payload)


def parse_events(lines: Iterable[str]) -> Iterator[LoggedEvent]:
    """Each complete event, without comments (heartbeats) and a torn last event."""
    fields: dict[str, str] = {}
    for line in lines:
        if line.startswith(":"):
            continue
        if line:
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
        elif "data" in fields:
            payload = json.loads(fields["data"])
            payload.pop("kind", None)  # older coordinators say it beside the data alone
            yield LoggedEvent(int(fields["id"]), fields.get("event", "message"), payload)
            fields = {}
