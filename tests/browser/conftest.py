"""A real Chromium, and coordinators for it to look at: `make test-browser` brings what they need."""

import os
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from starlette.responses import PlainTextResponse

from mallorn.core.settings import Settings
from mallorn.db.session import Database
from mallorn.services.coordinator.app import create_app
from mallorn.services.dashboard.static_pages import STATIC
from tests.fixtures.command_line import ROOT
from tests.fixtures.coordinator import OwnedRows, serving
from tests.fixtures.database import copied_database
from tests.fixtures.waiting import PATIENCE

TIMEOUT_MS = PATIENCE * 1000
VIEWPORT = {"width": 1280, "height": 900}
Page: TypeAlias = Any  # playwright.sync_api.Page, which is not a dependency of the tests
Open = Callable[..., Page]
# What Chromium says of an answer that is a refusal: expected where a test asks for one.
REFUSED = "Failed to load resource"


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A headless browser for the whole session."""
    executable = (
        os.environ.get("CHROMIUM")
        or subprocess.run(
            [ROOT / "services/dashboard/browser.sh"], stdout=subprocess.PIPE, text=True, check=False
        ).stdout.strip()
    )
    assert executable, "no Chromium that starts: apt-get install chromium fonts-liberation"
    assert (STATIC / "index.html").is_file(), "the page is not built: make page"
    # Its sandbox refuses to run as root or in a container, which may have no /dev/shm to speak of either.
    args = ["--no-sandbox", "--disable-dev-shm-usage"]
    with import_module("playwright.sync_api").sync_playwright() as running:
        browser = running.chromium.launch(executable_path=executable, args=args, timeout=TIMEOUT_MS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def idle_pages() -> dict[str, list[Page]]:
    """Blank pages that no test uses now, by the options of their contexts: a new one costs a second."""
    return defaultdict(list)


@pytest.fixture
def open_page(chromium: Any, idle_pages: dict[str, list[Page]]) -> Iterator[Open]:
    """Opens addresses; in the end no page may have complained on its console, but of what it may `expect`.

    Each page has a context to itself, without cookies and storage.
    """
    complaints: list[str] = []
    expected = [REFUSED]
    used: list[tuple[str, Page]] = []

    def note_console(said: Any) -> None:
        if said.type == "error":
            complaints.append(said.text)

    def note_error(error: Any) -> None:
        complaints.append(str(error))

    def go(url: str, expect: str = REFUSED, fake_clock: bool = False, **options: Any) -> Page:
        known = {"viewport": VIEWPORT} | options
        key = repr((fake_clock, sorted(known.items())))
        page = idle_pages[key].pop() if idle_pages[key] else _new_page(chromium, fake_clock, known)
        page.set_viewport_size(known["viewport"])
        used.append((key, page))
        expected.append(expect)
        page.on("console", note_console)
        page.on("pageerror", note_error)
        page.goto(url)
        return page

    yield go
    for key, page in used:
        page.remove_listener("console", note_console)
        page.remove_listener("pageerror", note_error)
        _make_blank(page)
        idle_pages[key].append(page)
    assert [text for text in complaints if not any(words in text for words in expected)] == []


def _new_page(chromium: Any, fake_clock: bool, options: dict[str, Any]) -> Page:
    context = chromium.new_context(**options)
    context.set_default_timeout(TIMEOUT_MS)
    if fake_clock:
        context.clock.install()
    return context.new_page()


def _make_blank(page: Page) -> None:
    """Forget all that a test did in a page and its context."""
    for other in page.context.pages:
        if other != page:
            other.close()
    page.unroute_all()
    if page.url.startswith("http"):
        page.evaluate("[localStorage, sessionStorage].forEach((each) => each.clear())")
    page.goto("about:blank")
    page.context.clear_cookies()


def behind_proxy(prefix: str, app: Any) -> Any:
    """Takes the prefix off, as docs/runbook.md has a proxy do it; without it there is nothing."""

    async def proxy(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            if not scope["path"].startswith(f"{prefix}/"):
                await PlainTextResponse("not of this service", status_code=404)(scope, receive, send)
                return
            path = scope["path"].removeprefix(prefix)
            scope = scope | {"path": path, "raw_path": path.encode()}
        await app(scope, receive, send)

    return proxy


@pytest.fixture
def quiet_database(sqlite_template: Path, tmp_path: Path) -> Iterator[Database]:
    """An empty database, for coordinators without workers."""
    with copied_database(sqlite_template, tmp_path / "mallorn.db") as database:
        yield database


@pytest.fixture
def serve(quiet_database: Database, tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Starts a coordinator on that database, below a prefix if one is given; gives the page's address."""
    with ExitStack() as stack:

        def start(prefix: str = "", **settings: Any) -> str:
            known = {"data_dir": tmp_path, "redis_url": "memory://"}
            app = create_app(Settings(**known | settings))
            outer = behind_proxy(prefix, app) if prefix else app
            return f"{stack.enter_context(serving(outer))}{prefix}/"

        yield start


@pytest.fixture
def rows(quiet_database: Database) -> OwnedRows:
    """A tuning job of the owner who looks at the page."""
    return OwnedRows(quiet_database)


@pytest.fixture(scope="session")
def empty_service(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The page's address at a coordinator that has nothing to show, for tests that change nothing."""
    folder = tmp_path_factory.mktemp("empty")
    shutil.copy(sqlite_template, folder / "mallorn.db")
    with serving(create_app(Settings(data_dir=folder, redis_url="memory://"))) as url:
        yield f"{url}/"
