"""Looks at a page once it has settled: what a reader would take offence at, and a picture to keep."""

import os
import re
from typing import Any, Final

import pytest

from tests.fixtures.command_line import ROOT

PICTURES: Final = ROOT / "build" / "screenshots"
#: Set where pictures are wanted, as they are in `make test-all`.
WANTED: Final = "PICTURES"
#: By its name in the pictures: what the browser is asked to be.
LOOKS: Final[dict[str, dict[str, Any]]] = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "narrow": {"color_scheme": "light", "viewport": {"width": 390, "height": 844}},
}
# Dark pages are wrong where light ones are. What is too wide for a phone is found in a window made narrow.
every_look: Final = pytest.mark.parametrize(
    "look", ["light", *(pytest.param(look, marks=pytest.mark.long) for look in ("narrow", "dark"))]
)
UNSAID: Final = re.compile(r"\b(undefined|NaN|null|Infinity|Invalid Date)\b|\[object ")
#: Behind two frames everything that was loaded is drawn.
DRAWN: Final = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done())))"
WORDS: Final = """
() => {
  const read = (name) => [...document.querySelectorAll(`[${name}]`)].map((one) => one.getAttribute(name));
  return [document.body.innerText, ...read('aria-label'), ...read('title')].join('\\n');
}
"""
TOO_WIDE: Final = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
#: Boxes whose content runs over their edge, and cells that are cut and do not say their whole text elsewhere.
CUT: Final = """
() => {
  const over = (box) => box.scrollWidth > box.clientWidth + 1;
  const all = (where) => [...document.querySelectorAll(where)].filter(over);
  const boxes = all('.fact, .fact dd, .toolbar, .title-row, .buttons, dialog, summary');
  const cells = all('.table-box td, .table-box td > small, .table-box th');
  const told = (cell) => cell.querySelector('[title]') || cell.closest('[title]');
  return [...boxes, ...cells.filter((cell) => !told(cell))].map((element) => element.innerText);
}
"""

# The searcher's field: a label is read with its options, and one of the mode is "search".
SEARCH: Final = re.compile("^Search")


def settle(page: Any) -> None:
    """Wait until nothing is on its way and all is drawn."""
    page.locator(".spinner").first.wait_for(state="detached")
    page.evaluate(DRAWN)


def faults(page: Any) -> list[str]:
    """What is wrong with what is shown, in words; empty where all is well."""
    found = [f"says {match.group()!r}" for match in UNSAID.finditer(page.evaluate(WORDS))]
    if (pixels := page.evaluate(TOO_WIDE)) > 0:
        found.append(f"is {pixels} pixels wider than the screen")
    return found + [f"cuts {text!r} off" for text in page.evaluate(CUT)]


def keep_picture(page: Any, name: str) -> None:
    """The whole page, as it stands, into build/screenshots, where pictures are wanted."""
    if os.environ.get(WANTED):
        PICTURES.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=PICTURES / f"{name}.png", full_page=True)


def narrow(page: Any) -> None:
    """Make the page as wide as a phone."""
    page.set_viewport_size(LOOKS["narrow"]["viewport"])
    settle(page)
