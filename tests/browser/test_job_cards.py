"""What stands above a job's numbers in a browser: why it failed, what it waits for, how well it did."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy.orm import Session

from mallorn.core.states import JobState, Waiting
from mallorn.core.values.job import SuggestedOptions
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.session import Database
from tests.browser.conftest import Open
from tests.browser.looks import LOOKS, SEARCH
from tests.fixtures.coordinator import OwnedRows
from tests.fixtures.rows import new_job

Serve = Callable[..., str]
SHAPES = {"input_ids": [1, 128], "mask": [1, 128]}
BECAUSE = "these inputs have free dimensions: input_ids [batch, 128]"
HINT = "--input-shape input_ids:1,128"


@pytest.fixture
def refused(rows: OwnedRows) -> str:
    """A job whose import was refused, with shapes that would help."""

    def add(session: Session) -> str:
        job, _ = Jobs(session).create(new_job("local", name="encoder", target_id=rows.target_id))
        Jobs(session).move_to_state(job.id, [JobState.QUEUED], JobState.FAILED, BECAUSE, HINT)
        Jobs(session).store_report_columns(job.id, suggest=SuggestedOptions(input_shapes=SHAPES))
        return str(job.id)

    return rows.write(add)


def end(rows: OwnedRows, report: dict[str, Any]) -> None:
    rows.write(lambda session: Jobs(session).store_report_columns(rows.job_id, report=report))
    rows.write(lambda session: Jobs(session).move_to_state(rows.job_id, [JobState.TUNING], JobState.DONE))


def timed(**medians_us: float) -> dict[str, Any]:
    return {"latency_us": {name: {"median": us, "low": us, "high": us} for name, us in medians_us.items()}}


def test_a_failed_import_is_one_card_and_no_empty_boxes(serve: Serve, open_page: Open, refused: str) -> None:
    page = open_page(f"{serve()}#/jobs/{refused}")
    card = page.get_by_role("region", name="It failed")
    card.wait_for()
    assert "free dimensions" in card.inner_text()
    headings = page.get_by_role("heading", level=2).all_inner_texts()
    assert headings == ["It failed", "About this job"]


def test_a_failed_job_is_tried_again_with_what_would_help(
    serve: Serve, open_page: Open, quiet_database: Database, refused: str
) -> None:
    page = open_page(f"{serve()}#/jobs/{refused}")
    page.get_by_role("button", name="Try again with input_ids:1,128 mask:1,128").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label(SEARCH).wait_for()
    assert dialog.get_by_label("Input shapes").input_value() == "input_ids:1,128 mask:1,128"
    dialog.get_by_label("Seed").fill("7")
    dialog.get_by_role("button", name="Start tuning").click()
    page.get_by_role("region", name="It failed").wait_for(state="detached")
    with quiet_database.session() as session:
        newest = Jobs(session).list("local", None, None, 10).items[0]
        assert (newest.name, newest.seed, newest.options["input_shapes"]) == ("encoder", 7, SHAPES)


def test_a_job_that_waits_says_for_what_with_the_command(
    serve: Serve, open_page: Open, rows: OwnedRows
) -> None:
    rows.write(
        lambda session: Jobs(session).set_waiting(
            rows.job_id, Waiting("no device serves this target", "mallorn device")
        )
    )
    page = open_page(f"{serve()}#/jobs/{rows.job_id}", permissions=["clipboard-read", "clipboard-write"])
    banner = page.get_by_label("What it waits for")
    banner.wait_for()
    assert "no device serves this target" in banner.inner_text()
    banner.get_by_role("button", name="Copy mallorn device").click()
    banner.get_by_text("copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()").startswith("mallorn device")


def test_a_result_that_is_slower_than_onnxruntime_is_no_success(
    serve: Serve, open_page: Open, rows: OwnedRows
) -> None:
    left = [{"step": "profile", "reason": "no time was left", "hint": "mallorn profile m.onnx"}]
    note = "The host was busy while the model was timed."
    more = {"skipped_steps": left, "conditions": {"steady": False, "note": note}}
    end(rows, timed(untuned=900.0, tuned=400.0, onnxruntime=100.0) | more)
    page = open_page(f"{serve()}#/jobs/{rows.job_id}")
    verdict = page.get_by_role("group", name="Verdict")
    verdict.wait_for()
    assert all(words in verdict.inner_text() for words in ("slower than onnxruntime", note.rstrip(".")))
    assert page.locator("h1 .mark-done-poor").is_visible()
    remarks = page.get_by_role("region", name="To be known").inner_text()
    assert all(words in remarks for words in ("profile, no time was left", "mallorn profile m.onnx"))
    assert note not in remarks
    page.get_by_role("link", name="Jobs", exact=True).first.click()
    page.locator("tbody .mark-done-poor").wait_for()


def test_on_a_phone_the_verdict_comes_before_what_can_be_done(
    serve: Serve, open_page: Open, rows: OwnedRows
) -> None:
    end(rows, timed(tuned=607.8, onnxruntime=612.0))
    page = open_page(f"{serve()}#/jobs/{rows.job_id}", **LOOKS["narrow"])
    verdict, actions = page.get_by_role("group", name="Verdict"), page.get_by_role("button", name="Delete …")
    verdict.wait_for()
    assert verdict.bounding_box()["y"] < actions.bounding_box()["y"]


def test_the_verdict_and_the_figure_beside_it_judge_alike(
    serve: Serve, open_page: Open, rows: OwnedRows
) -> None:
    ours, theirs = {"low": 605.0, "high": 610.0}, {"low": 604.0, "high": 608.0}
    times = {"tuned": {"median": 607.8} | ours, "onnxruntime": {"median": 606.0} | theirs}
    end(rows, {"latency_us": times})
    page = open_page(f"{serve()}#/jobs/{rows.job_id}")
    page.get_by_role("group", name="Verdict").get_by_text("as fast as onnxruntime").wait_for()
    assert page.locator("dd .good").get_by_text("as fast", exact=True).count() == 1
    assert page.locator("dd .bad").count() == 0


def test_a_jobs_id_seed_owner_and_commands_are_on_its_page(
    serve: Serve, open_page: Open, rows: OwnedRows
) -> None:
    page = open_page(f"{serve()}#/jobs/{rows.job_id}")
    about = page.get_by_role("region", name="About this job")
    about.get_by_text("all as they are by default").wait_for()
    told = about.inner_text()
    assert all(
        words in told for words in (rows.job_id, "Owner", "local", "Seed", f"mallorn watch {rows.job_id}")
    )
    assert "--url http://127.0.0.1" in told


def test_an_ended_job_is_archived_and_found_again(serve: Serve, open_page: Open, rows: OwnedRows) -> None:
    end(rows, {})
    page = open_page(f"{serve()}#/jobs/{rows.job_id}")
    page.get_by_role("button", name="Archive …").click()
    page.get_by_role("dialog").get_by_role("button", name="Archive it").click()
    page.get_by_text("No jobs yet").wait_for()
    page.get_by_role("button", name="archived").click()
    page.get_by_role("link", name="mlp").click()
    page.get_by_role("button", name="Take out of the archive").click()
    page.get_by_role("button", name="Archive …").wait_for()
    assert not rows.read(lambda session: Jobs(session).get(rows.job_id, None).archived_at)


def test_an_ended_job_is_deleted_after_a_question(serve: Serve, open_page: Open, rows: OwnedRows) -> None:
    end(rows, {})
    page = open_page(f"{serve()}#/jobs/{rows.job_id}")
    page.get_by_role("button", name="Delete …").click()
    page.get_by_role("dialog").get_by_role("button", name="Keep it").click()
    assert rows.read(lambda session: Jobs(session).get(rows.job_id, None))
    page.get_by_role("button", name="Delete …").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete it").click()
    page.get_by_text("No jobs yet").wait_for()
    page.go_back()
    page.get_by_text("There is no such job").wait_for()
