"""Reads server-sent events, across restarts of the coordinator that sends them."""

import json
import math
import random
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from mallorn.core.errors import Unavailable
from mallorn.core.values.event import KnownEvent, OtherEvent, read_event
from mallorn.http import TIMEOUT_SEC, Connection, Json

# Twice as long each time; a coordinator that is away for some two minutes is given up.
RECONNECT_SEC: Final = 0.5
LONGEST_PAUSE_SEC: Final = 15.0
RECONNECTS: Final = 12


class LoggedEvent(NamedTuple):
    """Something that happened to a job; `id` counts up without gaps, `payload` is JSON as it was sent."""

    id: int
    kind: str
    payload: Json

    @property
    def told(self) -> KnownEvent | OtherEvent:
        """What happened, one type a kind."""
        return read_event(self.kind, self.payload)


def listen(
    connection: Connection,
    path: str,
    is_over: Callable[[], bool],
    after: int = 0,
    deadline_sec: float = math.inf,
) -> Iterator[LoggedEvent | None]:
    """Every event from the one after `after` on, until the stream is over; None says that somebody is there.

    Raises TimeoutError behind the deadline, Unavailable when the coordinator stays away.
    """
    failures = 0
    while True:
        read_sec = min(TIMEOUT_SEC, max(0.0, deadline_sec - time.monotonic()))
        try:
            with connection.stream(path, {"Last-Event-ID": str(after)}, read_sec) as response:
                yield None
                for event in parse_events(response.iter_lines()):
                    after, failures = event.id if event else after, 0
                    yield event
                    _check_time(deadline_sec)
            # A coordinator that shuts down ends its streams as cleanly as a job does.
            if is_over():
                return
            lost = Unavailable(f"{connection.url} ended its events before their last")
        except Unavailable as error:
            lost = error
        _check_time(deadline_sec)
        failures += 1
        if connection.is_closed or failures > RECONNECTS:
            raise lost
        pause_sec = min(LONGEST_PAUSE_SEC, RECONNECT_SEC * 2 ** (failures - 1))
        pause_sec *= random.uniform(0.5, 1.5)  # noqa: S311 - whom one restart cut off come apart
        time.sleep(min(pause_sec, deadline_sec - time.monotonic()))


def _check_time(deadline_sec: float) -> None:
    if time.monotonic() > deadline_sec:
        raise TimeoutError


def parse_events(lines: Iterable[str]) -> Iterator[LoggedEvent | None]:
    """Each complete event, None for a comment (a heartbeat), and nothing for a torn last event."""
    fields: dict[str, str] = {}
    for line in lines:
        if line.startswith(":"):
            yield None
            continue
        if line:
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
        elif "data" in fields:
            payload = json.loads(fields["data"])
            payload.pop("kind", None)  # older coordinators say it beside the data alone
            yield LoggedEvent(int(fields["id"]), fields.get("event", "message"), payload)
            fields = {}
