"""Handing in a model in a browser, with options of one's own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mallorn.core.job_options import JobOptions
from mallorn.core.registry import list_names
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.session import Database
from tests.browser.conftest import Open
from tests.browser.looks import SEARCH

Serve = Callable[..., str]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Any bytes: nobody imports them here."""
    file = tmp_path / "tiny.onnx"
    file.write_bytes(b"a model")
    return file


def open_dialog(page: Any, model: Path) -> Any:
    page.get_by_role("button", name="Tune a model").first.click()
    page.get_by_label("ONNX file").set_input_files(model)
    page.get_by_role("combobox", name="Target").select_option("other")
    page.get_by_label("Target as JSON or tag").fill('{"kind":"llvm","num-cores":2}')
    page.get_by_text("Options", exact=True).click()
    return page.get_by_role("dialog")


def submitted(database: Database) -> dict[str, Any]:
    with database.session() as session:
        (job,) = Jobs(session).list("local", None, None, 10).items
        return dict(job.options)


def test_every_choice_of_the_server_is_offered_with_its_default(
    serve: Serve, open_page: Open, model: Path
) -> None:
    dialog = open_dialog(open_page(serve()), model)
    search = dialog.get_by_label(SEARCH)
    search.wait_for()
    offered = [words.removesuffix(" (default)") for words in search.locator("option").all_inner_texts()]
    assert offered == list_names("search")
    assert search.input_value() == JobOptions().search


def test_every_field_says_what_the_schema_says_of_its_option(
    serve: Serve, open_page: Open, model: Path
) -> None:
    dialog = open_dialog(open_page(serve()), model)
    dialog.get_by_label(SEARCH).wait_for()
    said = dialog.locator(".fields small").all_inner_texts()
    words = {str(field.description) for field in JobOptions.model_fields.values()}
    assert len(said) == len(set(said))
    assert set(said) <= words


def test_chosen_options_reach_the_job_and_the_others_keep_their_defaults(
    serve: Serve, open_page: Open, model: Path, quiet_database: Database
) -> None:
    page = open_page(serve())
    dialog = open_dialog(page, model)
    dialog.get_by_label(SEARCH).select_option("ga")
    dialog.get_by_label("Round size").fill("16")
    dialog.get_by_label("Only").fill("conv2d*, matmul")
    dialog.get_by_label("Contention").check()
    dialog.get_by_label("Private").check()
    dialog.get_by_label("Private").uncheck()
    dialog.get_by_text("Options (4 choices of yours)").wait_for()
    dialog.get_by_role("button", name="Start tuning").click()
    page.get_by_role("heading", name="tiny.onnx").wait_for()
    wanted = JobOptions(search="ga", round_size=16, only=["conv2d*", "matmul"], contention=True)
    assert submitted(quiet_database) == wanted.model_dump(mode="json")


def test_a_value_out_of_bounds_is_not_sent(
    serve: Serve, open_page: Open, model: Path, quiet_database: Database
) -> None:
    page = open_page(serve())
    dialog = open_dialog(page, model)
    dialog.get_by_label("Round size").fill("65")
    dialog.get_by_role("button", name="Start tuning").click()
    assert dialog.get_by_label("Round size").evaluate("field => field.validity.rangeOverflow")
    with quiet_database.session() as session:
        assert Jobs(session).list("local", None, None, 10).items == []
