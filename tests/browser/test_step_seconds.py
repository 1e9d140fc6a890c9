"""Where the time of a job went, in a browser: a bar of its steps, with figures for who points or listens."""

from collections.abc import Callable
from typing import Any

from mallorn.db.repositories.jobs import Jobs
from tests.browser.conftest import Open
from tests.browser.looks import faults, narrow
from tests.fixtures.coordinator import OwnedRows

Serve = Callable[..., str]
SECONDS: dict[str, Any] = {
    "import": {"wall": 8.08},
    "probe": {"wall": 0.04, "processor": 0.03},
    "build": {"wall": 5.56, "processor": 2.26},
    "compare": {"wall": 38.73, "processor": 9.47},
    "rest": {"wall": 1.91},
}
BUILD = "build: 5.56 s (10 %), 2.26 s of processor time; compiles the whole model"


def job_page(serve: Serve, open_page: Open, rows: OwnedRows, report: dict[str, Any]) -> Any:
    rows.write(lambda session: Jobs(session).store_report_columns(rows.job_id, report=report))
    page = open_page(f"{serve()}#/jobs/{rows.job_id}")
    page.get_by_role("heading", name="Tasks").wait_for()
    return page


def test_the_steps_lie_along_a_bar_by_their_seconds(serve: Serve, open_page: Open, rows: OwnedRows) -> None:
    page = job_page(serve, open_page, rows, {"seconds": SECONDS})
    parts = page.get_by_role("list", name="Seconds of each step").get_by_role("listitem")
    assert [words.split(":")[0] for words in parts.all_inner_texts()] == list(SECONDS)
    places = [part.bounding_box() for part in parts.all()]
    assert sorted(places, key=lambda place: place["x"]) == places
    assert places[3]["width"] > places[0]["width"] > places[2]["width"] > places[1]["width"] > 1
    legend = page.locator(".legend li").all_inner_texts()
    assert [words.strip() for words in legend] == [
        "import 8.08 s",
        "build 5.56 s",
        "compare 38.7 s",
        "rest 1.91 s",
    ]


def test_who_points_at_a_part_or_goes_to_it_reads_its_figures(
    serve: Serve, open_page: Open, rows: OwnedRows
) -> None:
    page = job_page(serve, open_page, rows, {"seconds": SECONDS})
    build = page.get_by_role("listitem").filter(has_text=BUILD)
    words = build.get_by_text(BUILD)
    assert words.evaluate("words => getComputedStyle(words).opacity") == "0"
    for reach in (build.hover, build.focus):
        reach()
        assert words.evaluate("words => getComputedStyle(words).opacity") == "1"
        page.get_by_role("heading", level=1).hover()
    narrow(page)
    assert faults(page) == []
    box = words.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= page.viewport_size["width"]


def test_a_report_that_does_not_tell_has_no_bar(serve: Serve, open_page: Open, rows: OwnedRows) -> None:
    page = job_page(serve, open_page, rows, {"schedule_count": 2, "workload_count": 2})
    assert page.get_by_text("Where the time went").count() == 0
