"""The page of the API: all from this server, no script inside of it, and the document that it shows."""

import re
from pathlib import Path

import pytest

from mallorn.services.dashboard.static_pages import DOCS_POLICY, STATIC
from tests.fixtures.coordinator import Coordinator

SQLITE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
WEB = STATIC.parent / "web"


@SQLITE
def test_the_policy_of_the_api_page_allows_this_servers_scripts_alone(
    coordinator: Coordinator,
) -> None:
    answer = coordinator.http.get(coordinator.url + "/docs")
    assert answer.headers["content-type"].startswith("text/html")
    assert answer.headers["content-security-policy"] == DOCS_POLICY
    assert "script-src 'self';" in DOCS_POLICY
    assert "unsafe" not in DOCS_POLICY
    assert "http" not in DOCS_POLICY


def test_the_page_has_no_script_of_its_own_and_its_viewers_licence_goes_along() -> None:
    text = (WEB / "docs.html").read_text()
    assert re.findall(r"<script[^>]*>([^<]*)", text) == [""]
    assert "swagger-ui-bundle.js.LICENSE.txt" in text
    assert "licences.md" in (WEB / "vite.config.ts").read_text()


@SQLITE
def test_it_shows_the_document_that_the_coordinator_serves(coordinator: Coordinator) -> None:
    (address,) = re.findall(r'url: "([^"]*)"', Path(WEB / "src" / "docs.ts").read_text())
    api = coordinator.http.get(f"{coordinator.url}/{address}").json()
    assert api["info"]["title"] == "Mallorn"
    assert api["servers"] == [{"url": "../.."}]
