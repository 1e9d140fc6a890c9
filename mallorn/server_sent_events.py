"""Client for server-sent events that reconnects when the coordinator restarts."""

import json
import math
import random
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from mallorn.core.errors import Unavailable
from mallorn.core.values.event import KnownEvent, OtherEvent, read_event
from mallorn.http import TIMEOUT_SEC, Connection, Json

# The pause doubles each time; the client gives up after some two minutes.
RECONNECT_SEC: Final = 0.5
LONGEST_PAUSE_SEC: Final = 15.0
RECONNECTS: Final = 12


class LoggedEvent(NamedTuple):
    """An event of a job. Ids count up without gaps; `payload` is the JSON that was sent."""

    id: int
    kind: str
    payload: Json

    @property
    def told(self) -> KnownEvent | OtherEvent:
        """The event as a value, whose class depends on its kind."""
        return read_event(self.kind, self.payload)


def listen(
    connection: Connection,
    path: str,
    is_over: Callable[[], bool],
    after: int = 0,
    deadline_sec: float = math.inf,
) -> Iterator[LoggedEvent | None]:
    """Yield the events after id `after` until `is_over`; None means connected, but no event.

    Raises TimeoutError after the deadline, and Unavailable if the coordinator stays away.
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
            # Streams also end without an error when the coordinator shuts down.
            if is_over():
                return
            failure = Unavailable(f"{connection.url} ended its events before their last")
        except Unavailable as error:
            failure = error
        _check_time(deadline_sec)
        failures += 1
        if connection.is_closed or failures > RECONNECTS:
            raise failure
        pause_sec = min(LONGEST_PAUSE_SEC, RECONNECT_SEC * 2 ** (failures - 1))
        pause_sec *= random.uniform(0.5, 1.5)  # noqa: S311 - jitter between clients
        time.sleep(min(pause_sec, deadline_sec - time.monotonic()))


def _check_time(deadline_sec: float) -> None:
    if time.monotonic() > deadline_sec:
        raise TimeoutError


def parse_events(lines: Iterable[str]) -> Iterator[LoggedEvent | None]:
    """Yield each complete event, and None for each comment (a heartbeat)."""
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
            payload.pop("kind", None)  # older coordinators repeat the kind in the data
            yield LoggedEvent(int(fields["id"]), fields.get("event", "message"), payload)
            fields = {}
