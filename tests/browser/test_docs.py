"""The page of the API, in a browser: Swagger UI without inline scripts, behind a proxy, too."""

from collections.abc import Callable
from urllib.parse import urlsplit

import pytest

from tests.browser.conftest import Open

Serve = Callable[..., str]


@pytest.mark.parametrize("prefix", ["", "/tools/mallorn"])
def test_operations_are_shown_and_tried_without_another_server(
    serve: Serve, open_page: Open, prefix: str
) -> None:
    url = serve(prefix=prefix)
    page = open_page("about:blank")
    asked: set[str] = set()
    page.on("request", lambda request: asked.add(request.url))
    page.goto(f"{url.rstrip('/')}/docs")
    operation = page.locator("[id$=-list_options]")
    operation.locator(".opblock-summary-control").click()
    operation.get_by_role("button", name="Try it out").click()
    operation.get_by_role("button", name="Execute").click()
    operation.locator(".live-responses-table .response-col_status").get_by_text("200").wait_for()
    here = urlsplit(url)
    assert {urlsplit(one).netloc for one in asked if not one.startswith("data:")} == {here.netloc}
    assert {urlsplit(one).path for one in asked} >= {f"{prefix}/docs", f"{prefix}/api/v1/options"}
