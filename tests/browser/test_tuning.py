"""The page beside a whole service: a file goes in, the curve moves, logs come out."""

import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import Open
from tests.browser.looks import keep_picture
from tests.fixtures.service import JOB_SEC, Service, start_service, stop_service

TUNED_MS = JOB_SEC * 1000


@pytest.fixture
def whole_service(chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Started only where there is a browser to look at it."""
    started = start_service(tmp_path_factory.mktemp("service"))
    yield started
    stop_service(started)


@pytest.mark.slow
def test_a_dropped_model_is_tuned_before_the_readers_eyes(
    whole_service: Service, open_page: Open, networks: Path, tmp_path: Path
) -> None:
    info = whole_service.data.read_stack()
    assert info is not None
    page = open_page(info.url)
    page.get_by_role("button", name="Tune a model").first.click()
    page.get_by_label("ONNX file").set_input_files(networks / "dense.onnx")
    page.get_by_label("Budget in trials").fill("4")
    page.get_by_role("button", name="Start tuning").click()

    page.get_by_role("heading", name="dense.onnx").wait_for()
    page.get_by_text("live", exact=True).wait_for()
    page.get_by_role("group", name="Decisions").wait_for(timeout=TUNED_MS)
    keep_picture(page, "real-job-tuning")
    page.locator("h1 [class*='mark-done']").first.wait_for(timeout=TUNED_MS)
    page.get_by_text("Untuned", exact=True).first.wait_for()  # its time stands there once the model was timed
    keep_picture(page, "real-job-done")

    with page.expect_download() as logs:
        page.get_by_role("button", name="Download schedules").click()
    logs.value.save_as(tmp_path / "logs.zip")
    with zipfile.ZipFile(tmp_path / "logs.zip") as archive:
        assert "database_tuning_record.json" in archive.namelist()

    page.get_by_role("group", name="Tasks").get_by_role("link").first.click()
    page.get_by_role("heading", name="Measurements over time").wait_for()
    # Four measurements may leave none that is still right when it is timed again.
    kept = page.get_by_role("group", name="Unscheduled beside").or_(
        page.get_by_text("No schedule", exact=True)
    )
    kept.first.wait_for()
    keep_picture(page, "real-task")
    page.get_by_role("link", name="Fleet").click()
    page.get_by_role("group", name="Devices").wait_for()
    page.get_by_role("img", name=re.compile("rounds? since")).first.wait_for()
    keep_picture(page, "real-fleet")
    page.get_by_role("link", name="Dataset").click()
    page.get_by_role("group", name="Schedules").wait_for()
    keep_picture(page, "real-dataset")
    page.get_by_role("link", name="Cost models").click()
    # So few trials give a model only to a family that was lucky.
    page.get_by_role("heading", name="Cost models").wait_for()
    keep_picture(page, "real-costmodels")
