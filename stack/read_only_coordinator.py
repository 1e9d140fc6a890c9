"""Reads a data directory without a running service, by the coordinator's app in-process."""

import asyncio
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import httpx

from mallorn.core.errors import Conflict, MallornError, Unavailable
from mallorn.core.settings import Settings
from mallorn.stack.data_directory import DataDir
from mallorn.wording.format_values import insert_option

if TYPE_CHECKING:
    from fastapi import FastAPI

HERE: Final = "http://localhost"  # a host name that the app accepts; nothing listens there


class NothingRuns(Unavailable):
    """No service runs on this data directory, so nothing can be changed."""


class InProcess(httpx.BaseTransport):
    """Answers GET requests with an app in this process; raises NothingRuns for other methods."""

    def __init__(self, app: "FastAPI", directory: DataDir) -> None:
        self._app = httpx.ASGITransport(app)
        self._directory = directory

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if request.method != "GET":
            raise NothingRuns(f"no service runs on {self._directory.path}", hint="mallorn up")
        with ThreadPoolExecutor(1) as thread:  # a notebook's own thread already has an event loop
            return thread.submit(asyncio.run, self._answer(request)).result()

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        answer = await self._app.handle_async_request(request)
        return httpx.Response(answer.status_code, headers=answer.headers, content=await answer.aread())


class DataDirTransport(httpx.BaseTransport):
    """Sends requests to the service on a data directory; without one, answers in this process."""

    def __init__(self, directory: DataDir) -> None:
        self._directory = directory
        self._network = httpx.HTTPTransport()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send or answer a request. Raises NothingRuns, and the errors of `serve_in_process`."""
        stack = self._directory.read_running_stack()
        if stack is not None:
            url = httpx.URL(stack.url)
            request.url = request.url.copy_with(host=url.host, port=url.port)
            return self._network.handle_request(request)
        with add_data_option_to_hints(self._directory), serve_in_process(self._directory) as transport:
            return transport.handle_request(request)

    def close(self) -> None:
        self._network.close()


@contextmanager
def serve_in_process(directory: DataDir) -> Iterator[InProcess]:
    """Yield a transport that reads a data directory, and migrates or creates nothing in it.

    Raises Conflict if its tables need a migration, Unavailable without the server.
    """
    try:
        from mallorn.services.coordinator.app import create_app
    except ModuleNotFoundError as error:
        message = f"without a URL, {error.name} must be installed to read {directory.path}"
        raise Unavailable(message, hint="--url URL, or set MALLORN_URL") from None
    from mallorn.db.migrate import OldTables, check_table_version

    # The app logs errors that it also returns, and the command prints these.
    logging.getLogger("mallorn.services").addHandler(logging.NullHandler())
    with ExitStack() as stack:
        app = create_app(stack.enter_context(_settings(directory)))
        stack.callback(app.state.parts.close)
        try:
            check_table_version(app.state.parts.database)
        except OldTables:
            raise Conflict(
                f"an older Mallorn wrote the data in {directory.path}, and they are not migrated yet",
                hint=f"MALLORN_DATA_DIR={directory.path} mallorn migrate",
            ) from None
        app.state.parts.stopping.set()  # event streams send the current state and end
        yield InProcess(app, directory)


@contextmanager
def _settings(directory: DataDir) -> Iterator[Settings]:
    """Yield settings for the directory; without a database there, with an empty one."""
    from mallorn.db.engine import parse_url
    from mallorn.db.migrate import upgrade

    config = Settings(data_dir=directory.path)
    url = parse_url(config.database_url)
    if url.get_backend_name() != "sqlite" or Path(str(url.database)).is_file():
        yield config
        return
    with TemporaryDirectory(prefix="mallorn-") as folder:
        empty = f"sqlite:///{folder}/mallorn.db"
        upgrade(empty)
        yield config.model_copy(update={"database_url": empty})


@contextmanager
def add_data_option_to_hints(directory: DataDir) -> Iterator[None]:
    """Add `--data DIR`, if it is not the default, to commands in hints of errors."""
    try:
        yield
    except MallornError as error:
        error.hint = insert_option(error.hint, data_option(directory))
        raise


def data_option(directory: DataDir) -> str:
    """Return the option ` --data DIR`; empty for the default directory."""
    is_default = directory.path == Settings().data_dir.absolute()
    return "" if is_default else f" --data {directory.path}"
