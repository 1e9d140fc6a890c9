"""The artifact store: files that a run keeps in memory, and that are out of reach now and then."""

import errno
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Final

import fsspec
from fsspec import AbstractFileSystem

from tests.simulation.loom import Loom

PROTOCOL: Final = "simulated"
URL: Final = f"{PROTOCOL}://artifacts"
MODEL_BYTES: Final = b"a model"
WORDS: Final = "the simulated store does not answer"
#: What a share that is broken or not mounted, a server that is down and one that is slow raise.
ERRORS: Final[tuple[Callable[[], OSError], ...]] = (
    lambda: OSError(errno.EIO, WORDS),
    lambda: PermissionError(errno.EACCES, WORDS),
    lambda: ConnectionRefusedError(errno.ECONNREFUSED, WORDS),
    lambda: TimeoutError(WORDS),
)


class Shelf:
    """Whether the store of a run is in reach."""

    def __init__(self, loom: Loom) -> None:
        self._loom = loom
        self.away_until = 0.0

    def check(self) -> None:
        """Raise what a store raises that is away."""
        if self._loom.now < self.away_until:
            raise self._loom.random.choice(ERRORS)()


class Store(AbstractFileSystem):  # type: ignore[misc]
    """What Mallorn asks of a store: every file of it is a model, and nothing that is put there matters."""

    protocol = PROTOCOL
    shelf: ClassVar[Shelf | None] = None

    def open(self, path: str, mode: str = "rb", **_more: Any) -> io.BytesIO:
        self._reach()
        return io.BytesIO(MODEL_BYTES)

    def put_file(self, lpath: str, rpath: str, *_args: Any, **_more: Any) -> None:
        self._reach()

    def pipe_file(self, path: str, value: bytes, *_args: Any, **_more: Any) -> None:
        self._reach()

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        self._reach()

    def exists(self, path: str, **_more: Any) -> bool:
        self._reach()
        return False

    def _reach(self) -> None:
        if Store.shelf is not None:
            Store.shelf.check()


@contextmanager
def stored_at(shelf: Shelf) -> Iterator[None]:
    """Let fsspec find this run's store."""
    fsspec.register_implementation(PROTOCOL, Store, clobber=True)
    Store.shelf = shelf
    try:
        yield
    finally:
        Store.shelf = None
