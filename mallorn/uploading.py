"""A model on its way up: counted and hashed, and looked for there where the answer got lost.

A proxy gives up on a coordinator that is silent for a minute, and a slow store may need longer than that to
put a large model in its place.
"""

import hashlib
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from mallorn.core.errors import NotFound, Unavailable
from mallorn.http import AnswerLost, Connection

Progress = Callable[[int, int], None]  # bytes sent, bytes in all
PATIENCE_SEC: Final = 300.0
LOOK_EVERY_SEC: Final = 2.0


class Outgoing:
    """The pieces of a model, as they are sent."""

    def __init__(self, chunks: Iterator[bytes], size_bytes: int, progress: Progress | None) -> None:
        self._chunks = chunks
        self._size_bytes = size_bytes
        self._progress = progress
        self._hash = hashlib.sha256()
        self._sent_bytes = 0

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            self._hash.update(chunk)
            yield chunk
            self._sent_bytes += len(chunk)
            if self._progress is not None:
                self._progress(self._sent_bytes, self._size_bytes)

    def put(self, connection: Connection, name: str) -> Any:
        """What the coordinator says of the model. Raises AnswerLost if it does not turn up there either."""
        try:
            return connection.put("/models", iter(self), self._size_bytes, name=name)
        except AnswerLost as lost:
            if self._sent_bytes < self._size_bytes:
                raise
            return self._found(connection, lost)

    def _found(self, connection: Connection, lost: AnswerLost) -> Any:
        until_sec = time.monotonic() + PATIENCE_SEC
        while time.monotonic() < until_sec:
            try:
                return connection.get(f"/models/{self._hash.hexdigest()}")
            except (NotFound, Unavailable):
                time.sleep(LOOK_EVERY_SEC)
        raise lost
