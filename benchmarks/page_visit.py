"""Load a page in headless Chromium and measure it by scripts inside the page."""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Final

BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome")
PICTURES: Final = Path("build/screenshots")
WAIT_MS: Final = 60_000
VIEW: Final = {"width": 1440, "height": 900}
# Runs inside the page; otherwise the driver's round trips would be included.
WATCH_ROWS: Final = """
new MutationObserver((_changes, observer) => {
  if (!document.querySelector('[aria-label="Tasks"] tbody a')) return;
  observer.disconnect();
  requestAnimationFrame(() => requestAnimationFrame(() => { window.rowsShownMs = performance.now(); }));
}).observe(document, { childList: true, subtree: true });
"""
# The page's content security policy forbids wait_for_function, which uses eval.
ROWS_SHOWN: Final = """
() => new Promise((done) => {
  const look = () => (window.rowsShownMs ? done(window.rowsShownMs) : requestAnimationFrame(look));
  look();
})
"""
SCROLL: Final = """
async (seconds) => {
  const box = document.querySelector('[aria-label="Tasks"]');
  const frames = [];
  const begin = performance.now();
  await new Promise((done) => {
    const step = (now) => {
      frames.push(now);
      const share = Math.min(1, (now - begin) / (seconds * 1000));
      box.scrollTop = share * (box.scrollHeight - box.clientHeight);
      share < 1 ? requestAnimationFrame(step) : done();
    };
    requestAnimationFrame(step);
  });
  const gaps = frames.slice(1).map((at, place) => at - frames[place]);
  return { fps: 1000 * gaps.length / (frames.at(-1) - frames[0]), longest_frame_ms: Math.max(...gaps) };
}
"""
SORT: Final = """
async () => {
  const begin = performance.now();
  const headings = [...document.querySelectorAll('[aria-label="Tasks"] th button')];
  headings.find((heading) => heading.textContent.startsWith('Task')).click();
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  return performance.now() - begin;
}
"""
PAINT: Final = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
SCROLL_SEC: Final = 4


@contextmanager
def browser() -> Iterator[Any]:
    """Run a headless Chromium. Raises SystemExit if it is not installed."""
    executable = next(filter(None, map(shutil.which, BROWSERS)), None)
    if executable is None:
        sys.exit("no Chromium: apt-get install chromium")
    # Chromium's sandbox refuses to run as root.
    args = ["--no-sandbox"] if os.geteuid() == 0 else []
    with import_module("playwright.sync_api").sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=executable, args=args)
        yield chromium
        chromium.close()


def visit(chromium: Any, url: str) -> dict[str, float]:
    """Load a job's page with an empty cache, scroll and sort its tasks; return the times."""
    context = chromium.new_context(viewport=VIEW)
    try:
        page = context.new_page()
        page.add_init_script(WATCH_ROWS)
        page.goto(url)
        page.locator('[aria-label="Tasks"] tbody a').first.wait_for(timeout=WAIT_MS)
        page.get_by_role("group", name="Decisions").wait_for(timeout=WAIT_MS)
        times = {"first_paint_ms": page.evaluate(PAINT), "rows_ms": page.evaluate(ROWS_SHOWN)}
        PICTURES.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=PICTURES / "many-tasks.png")
        moves = page.evaluate(SCROLL, SCROLL_SEC)
        return times | moves | {"sort_ms": page.evaluate(SORT)}
    finally:
        context.close()
