"""Links between the pages of the documentation lead somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").glob("*.md")])
LINK = re.compile(r"\]\((?!https?://|#)([^)#\s]+)")
ANCHOR = re.compile(r"\]\((?!https?://)([^)#\s]*)#([^)\s]+)\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file(page: Path) -> None:
    links = LINK.findall(page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_anchor_leads_to_a_heading(page: Path) -> None:
    anchors = [
        (page.parent / file if file else page, name) for file, name in ANCHOR.findall(page.read_text())
    ]
    assert [f"{file.name}#{name}" for file, name in anchors if name not in headings(file)] == []


def test_the_index_links_every_page_once() -> None:
    """A page that only says where its text went has no place in the index."""
    docs = ROOT / "docs"
    links = sorted((docs / link).resolve() for link in LINK.findall((docs / "README.md").read_text()))
    pages = [page for page in docs.rglob("*.md") if not {"adr", "results"} & {*page.parts}]
    moved = [page for page in pages if page.read_text().startswith("This page is now part of")]
    wanted = {*pages} - {*moved, docs / "README.md"}
    assert sorted(page for page in wanted if links.count(page) != 1) == []
    assert [link for link in links if links.count(link) > 1] == []


def headings(page: Path) -> set[str]:
    """The anchors that a page has, as GitHub names them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
