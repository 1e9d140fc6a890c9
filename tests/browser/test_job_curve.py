"""The chart of a job in a browser: from the first round on, with what the job came to."""

from collections.abc import Callable
from typing import Any

from mallorn.core.states import JobState
from mallorn.db.repositories.jobs import Jobs
from tests.browser.conftest import Open
from tests.fixtures.coordinator import OwnedRows

Serve = Callable[..., str]


def run_round(rows: OwnedRows, workload: str, latency_us: float) -> None:
    rows.closed_round(rows.ok(0, latency_us), workload=workload)


def finish(rows: OwnedRows, **medians_us: float) -> None:
    latencies = {engine: {"median": us, "low": us, "high": us} for engine, us in medians_us.items()}
    rows.write(
        lambda session: Jobs(session).store_report_columns(rows.job_id, report={"latency_us": latencies})
    )
    rows.write(lambda session: Jobs(session).move_to_state(rows.job_id, [JobState.TUNING], JobState.DONE))


def legend(page: Any) -> str:
    page.locator(".u-legend").wait_for()
    return str(page.locator(".u-legend").inner_text())


def test_the_chart_begins_when_every_task_is_timed(serve: Serve, open_page: Open, rows: OwnedRows) -> None:
    run_round(rows, "w0", 20.0)
    page = open_page(f"{serve()}#/jobs/{rows.job_id}")
    page.get_by_text("1 of 2 tasks timed: it begins when all are.").wait_for()
    assert page.locator(".u-legend").count() == 0


def test_a_legend_at_which_nobody_points_reads_the_last_values(
    serve: Serve, open_page: Open, rows: OwnedRows
) -> None:
    run_round(rows, "w0", 20.0)
    run_round(rows, "w1", 10.0)
    page = open_page(f"{serve()}#/jobs/{rows.job_id}")
    read = legend(page)
    assert "sum over tasks" in read
    assert "40 µs" in read
    assert "--" not in read


def test_an_ended_job_has_the_engines_that_compare_on_its_chart_and_no_next_gain(
    serve: Serve, open_page: Open, rows: OwnedRows
) -> None:
    run_round(rows, "w0", 20.0)
    run_round(rows, "w1", 10.0)
    finish(rows, untuned=9000.0, tuned=45.0, onnxruntime=12.0)
    page = open_page(f"{serve()}#/jobs/{rows.job_id}")
    read = legend(page)
    assert all(words in read for words in ("45 µs", "12 µs", "onnxruntime"))
    assert "untuned" not in read
    assert page.get_by_text("Off the picture: untuned, 9 ms.").count() == 1
    assert page.get_by_role("heading", name="Latency", exact=True).is_visible()
    assert "Next gain" not in page.get_by_role("group", name="Tasks").inner_text()


def test_an_ended_job_without_a_round_has_no_curve_though_its_tasks_were_timed_before(
    serve: Serve, open_page: Open, rows: OwnedRows
) -> None:
    run_round(rows, "w0", 20.0)
    run_round(rows, "w1", 10.0)
    rows.job_id = rows.write(lambda session: rows.add_job(session, "local", ("w0", "w1")))
    finish(rows, tuned=45.0)
    page = open_page(f"{serve()}#/jobs/{rows.job_id}")
    page.get_by_text("No candidate was timed.").wait_for()
    tasks = page.get_by_role("group", name="Tasks").inner_text()
    assert "20 µs" in tasks
    assert "Best" not in tasks
