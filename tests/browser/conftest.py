"""A real Chromium, and coordinators for it to look at: `make test-browser` brings what they need."""

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

from db.session import Database
from mallorn.core.settings import Settings
from services.coordinator.app import create_app
from services.dashboard.pages import STATIC

NAMES = ("chromium", "chromium-browser", "google-chrome")
TIMEOUT_MS = 20_000
Page: TypeAlias = Any  # playwright.sync_api.Page, which is not a dependency of the tests
Open = Callable[..., Page]
# What Chromium says of an answer that is a refusal: expected where a test asks for one.
REFUSED = "Failed to load resource"


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A headless browser for the whole session."""
    executable = next(filter(None, map(shutil.which, NAMES)), None)
    assert executable, "no Chromium: apt-get install chromium"
    assert (STATIC / "index.html").is_file(), "the page is not built: make page"
    # Chromium's sandbox refuses to run as root.
    args = ["--no-sandbox"] if os.geteuid() == 0 else []
    with import_module("playwright.sync_api").sync_playwright() as running:
        browser = running.chromium.launch(executable_path=executable, args=args)
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium: Any) -> Iterator[Open]:
    """Opens addresses; in the end no page may have complained on its console."""
    complaints: list[str] = []
    contexts = []

    def note(message: Any) -> None:
        if message.type == "error":
            complaints.append(message.text)

    def go(url: str, **options: Any) -> Page:
        context = chromium.new_context(viewport={"width": 1280, "height": 900}, **options)
        context.set_default_timeout(TIMEOUT_MS)
        contexts.append(context)
        page = context.new_page()
        page.on(
            "console", lambda message: complaints.append(message.text) if message.type == "error" else None
        )
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(url)
        return page

    yield go
    for context in contexts:
        context.close()
    assert [text for text in complaints if REFUSED not in text] == []


@contextmanager
def serving(app: Any) -> Iterator[str]:
    """An app on a free port of loopback; gives its address."""
    server = uvicorn.Server(
        uvicorn.Config(app, port=0, log_config=None, ws="none", timeout_graceful_shutdown=1)
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            thread.join(0.05)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/"
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture
def quiet_database(sqlite_template: Path, tmp_path: Path) -> Iterator[Database]:
    """An empty database, for coordinators without workers."""
    file = tmp_path / "mallorn.db"
    shutil.copy(sqlite_template, file)
    database = Database(f"sqlite:///{file}")
    yield database
    database.dispose()


@pytest.fixture
def serve(quiet_database: Database, tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Starts a coordinator on that database, below a prefix if one is given; gives the page's address."""
    with ExitStack() as stack:

        def start(prefix: str = "", **settings: Any) -> str:
            known = {"data_dir": tmp_path, "redis_url": "memory://"}
            app = create_app(Settings(**known | settings))
            outer = Starlette(routes=[Mount(prefix, app=app)]) if prefix else app
            return stack.enter_context(serving(outer)) + (f"{prefix.strip('/')}/" if prefix else "")

        yield start
