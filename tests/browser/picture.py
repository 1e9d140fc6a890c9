"""Takes the picture in README.md: the page of a tuning that was recorded.   make picture"""

import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from benchmarks.page_visit import browser
from mallorn.core.settings import Settings
from mallorn.db.migrate import upgrade
from mallorn.db.session import Database
from mallorn.services.coordinator.app import create_app
from tests.browser.furnished import furnish
from tests.browser.looks import settle
from tests.fixtures.coordinator import serving

VIEW: Final = {"width": 1200, "height": 960}
MOST_BYTES: Final = 200_000


def main(file: Path) -> None:
    """Furnish a service, look at its finished job, and write what is seen."""
    with tempfile.TemporaryDirectory(prefix="mallorn-picture-") as folder:
        job_id = _furnished(Path(folder))
        settings = Settings(data_dir=Path(folder), redis_url="memory://")
        with serving(create_app(settings)) as url, browser() as chromium:
            file.write_bytes(_seen(chromium, f"{url}/#/jobs/{job_id}"))
    size = file.stat().st_size
    if size > MOST_BYTES:
        sys.exit(f"{file} has {size:,} bytes, and a README's picture at most {MOST_BYTES:,}")
    print(f"{file}: {size:,} bytes")


def _furnished(folder: Path) -> str:
    url = f"sqlite:///{folder}/mallorn.db"
    upgrade(url)
    database = Database(url)
    try:
        return furnish(database, folder / "artifacts", time.time()).done
    finally:
        database.dispose()


def _seen(chromium: Any, url: str) -> bytes:
    page = chromium.new_context(viewport=VIEW, color_scheme="light").new_page()
    page.goto(url)
    page.get_by_role("group", name="Decisions").wait_for()
    settle(page)
    seen: bytes = page.screenshot()
    return seen


if __name__ == "__main__":
    main(Path(sys.argv[1]))
