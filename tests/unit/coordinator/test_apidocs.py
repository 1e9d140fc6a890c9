"""The page of the API: all of it, and nothing that another server would have to send."""

import pytest

from mallorn.report.style_and_csp import SERVED
from tests.fixtures.coordinator import Coordinator
from tests.fixtures.markup import Markup

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


@pytest.fixture
def page(coordinator: Coordinator) -> Markup:
    answer = coordinator.http.get(coordinator.url + "/docs")
    assert answer.headers["content-type"].startswith("text/html")
    assert answer.headers["content-security-policy"] == SERVED
    return Markup(answer.text.removeprefix("<!doctype html>\n"))


def test_the_page_of_the_api_needs_no_internet_and_no_script(page: Markup) -> None:
    assert not {"script", "img", "link", "iframe"} & set(page.tags)
    targets = {value for name, value in page.attributes if name in ("href", "src") and value}
    assert not {target for target in targets if target.startswith(("http", "//"))}
    assert "unsafe" not in SERVED
    assert "http" not in SERVED


def test_every_route_and_every_type_is_on_it(page: Markup, coordinator: Coordinator) -> None:
    api = coordinator.http.get("/openapi.json").json()
    for path, methods in api["paths"].items():
        for method, operation in methods.items():
            assert f"{method.upper()} {path}" in page.text
            assert operation["description"].splitlines()[0] in page.text
    ids = {value for name, value in page.attributes if name == "id"}
    assert set(api["components"]["schemas"]) <= ids


def test_links_lead_somewhere(page: Markup, coordinator: Coordinator) -> None:
    ids = {value for name, value in page.attributes if name == "id"}
    targets = {value for name, value in page.attributes if name == "href" and value}
    assert {target for target in targets if target.startswith("#") and target[1:] not in ids} == set()
    (description,) = (target for target in targets if not target.startswith("#"))
    assert coordinator.http.get(f"{coordinator.url}/{description}").json()["info"]["title"] == "Mallorn"


def test_examples_name_this_server_and_how_a_body_is_sent(page: Markup, coordinator: Coordinator) -> None:
    assert f"curl {coordinator.url}/api/v1/jobs -H 'Content-Type: application/json'" in page.text
    assert f"curl -T FILE {coordinator.url}/api/v1/models" in page.text
    assert f"curl -X POST {coordinator.url}/api/v1/jobs/{{job_id}}/cancel" in page.text
