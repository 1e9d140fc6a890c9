"""What a browser gets at `/`, with and without a built page, and what anyone else gets."""

from pathlib import Path

import anyio
import httpx
import pytest
from fastapi import FastAPI

from mallorn.services.dashboard.static_pages import add_page

BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


class Asking:
    """Requests to an app that has the page of a directory."""

    def __init__(self, directory: Path) -> None:
        app = FastAPI()
        add_page(app, {"name": "Mallorn"}, directory)
        self._transport = httpx.ASGITransport(app)

    def get(self, path: str, headers: dict[str, str] | None = None) -> httpx.Response:
        async def ask() -> httpx.Response:
            async with httpx.AsyncClient(transport=self._transport, base_url="http://127.0.0.1") as client:
                return await client.get(path, headers=headers)

        return anyio.run(ask)


@pytest.fixture
def http(tmp_path: Path) -> Asking:
    return Asking(tmp_path)


def build(directory: Path) -> None:
    (directory / "assets").mkdir()
    (directory / "index.html").write_text("<!doctype html><title>built</title>")
    (directory / "assets" / "index-1234.js").write_text("export {};")


def test_a_page_that_was_not_built_says_how_to_build_it(http: Asking) -> None:
    answer = http.get("/", headers=BROWSER)
    assert answer.status_code == 200
    assert "make page" in answer.text


def test_assets_that_were_not_built_are_not_found(http: Asking) -> None:
    assert http.get("/assets/index.js").status_code == 404


def test_a_page_that_is_built_meanwhile_is_served_without_a_restart(http: Asking, tmp_path: Path) -> None:
    http.get("/", headers=BROWSER)
    build(tmp_path)
    assert "built" in http.get("/", headers=BROWSER).text
    assert http.get("/assets/index-1234.js").text == "export {};"


def test_the_policy_lets_nothing_in_from_elsewhere_and_nothing_inline(http: Asking, tmp_path: Path) -> None:
    build(tmp_path)
    policy = http.get("/", headers=BROWSER).headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert "http" not in policy


def test_assets_are_kept_and_the_page_that_names_them_is_asked_for_again(
    http: Asking, tmp_path: Path
) -> None:
    build(tmp_path)
    assert "immutable" in http.get("/assets/index-1234.js").headers["Cache-Control"]
    assert http.get("/", headers=BROWSER).headers["Cache-Control"] == "no-cache"


def test_nothing_outside_the_assets_can_be_read(http: Asking, tmp_path: Path) -> None:
    build(tmp_path)
    assert http.get("/assets/%2e%2e/index.html").status_code == 404
    assert http.get("/assets/none.js").status_code == 404


def test_who_does_not_ask_for_html_is_told_where_the_api_is(http: Asking) -> None:
    assert http.get("/").json() == {"name": "Mallorn"}
