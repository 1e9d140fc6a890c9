"""One job in a browser: news as they happen, ten thousand tasks, failures in words."""

from collections.abc import Callable

from sqlalchemy.orm import Session

from mallorn.core.states import RoundState
from mallorn.core.values.event import RoundClosedEvent
from mallorn.db.repositories.job_events_and_warnings import Events
from mallorn.db.repositories.measurements import Measurements
from mallorn.db.repositories.rounds import Rounds
from mallorn.db.repositories.tasks import NewTask, Tasks
from mallorn.db.repositories.workloads import Workloads
from tests.browser.conftest import Open
from tests.fixtures.coordinator import OwnedRows
from tests.fixtures.rows import new_workload

Serve = Callable[..., str]
MANY = 10_000
DRAWN_ROWS = 80


def run_round(rows: OwnedRows, workload: str, latency_us: float, failures: int = 0) -> None:
    """A round from its claim to its end, with the event that tells of it."""
    _, hold = rows.claimed_round(workload)
    found = [rows.ok(0, latency_us), *(rows.failed(slot) for slot in range(1, failures + 1))]

    def end(session: Session) -> None:
        Measurements(session).add_trials(hold, found)
        Rounds(session).close(hold, RoundState.DONE)
        Events(session).append(rows.job_id, RoundClosedEvent(round=0, task=0, name="w0"))

    rows.write(end)


def test_before_the_first_round_every_part_says_what_it_waits_for(
    serve: Serve, open_page: Open, rows: OwnedRows
) -> None:
    page = open_page(f"{serve()}#/jobs/{rows.job_id}")
    page.get_by_text("No curve yet").wait_for()
    page.get_by_text("No rounds yet").wait_for()
    page.get_by_text("No candidate has failed").wait_for()


def test_news_arrive_without_a_reload_and_leave_the_readers_choices(
    serve: Serve, open_page: Open, rows: OwnedRows
) -> None:
    page = open_page(f"{serve()}#/jobs/{rows.job_id}")
    page.get_by_text("live", exact=True).wait_for()
    page.get_by_role("group", name="Tasks").get_by_role("button", name="ID").click()
    run_round(rows, "w0", 20.0)
    run_round(rows, "w1", 10.0)
    page.get_by_role("img", name="Latency stayed at 40 µs").wait_for()
    page.get_by_label("seconds").check()
    run_round(rows, "w1", 5.0)
    page.get_by_role("img", name="to 30 µs").wait_for()
    assert page.get_by_label("seconds").is_checked()
    assert (
        page.get_by_role("group", name="Tasks")
        .locator("th[aria-sort=descending]")
        .inner_text()
        .startswith("ID")
    )


def test_without_a_stream_the_page_asks_again_by_itself(
    serve: Serve, open_page: Open, rows: OwnedRows
) -> None:
    url = serve()
    page = open_page(url)
    page.route("**/events?*", lambda route: route.abort())
    page.goto(f"{url}#/jobs/{rows.job_id}")
    page.get_by_text("every few seconds").wait_for()
    run_round(rows, "w0", 20.0)
    page.get_by_role("group", name="Decisions").get_by_text("20 µs").wait_for()


def test_a_job_is_paused_resumed_and_given_more_trials(
    serve: Serve, open_page: Open, rows: OwnedRows
) -> None:
    page = open_page(f"{serve()}#/jobs/{rows.job_id}")
    page.get_by_role("button", name="Pause").click()
    page.locator("h1 .mark-paused").wait_for()
    page.get_by_text("paused by its owner").wait_for()
    page.get_by_role("button", name="Add trials …").click()
    page.get_by_label("Trials on top of 64").fill("36")
    page.get_by_role("button", name="Go on").click()
    page.locator("h1 .mark-tuning").wait_for()
    page.get_by_text("of 100").first.wait_for()
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Resume", exact=True).click()
    page.locator("h1 .mark-tuning").wait_for()


def test_failures_are_told_with_their_texts(serve: Serve, open_page: Open, rows: OwnedRows) -> None:
    run_round(rows, "w0", 20.0, failures=3)
    page = open_page(f"{serve()}#/jobs/{rows.job_id}")
    page.get_by_text("3 candidates did not build").click()
    page.locator(".texts pre").first.wait_for()
    assert page.locator(".texts pre").first.inner_text() == "no"


def test_a_task_shows_each_of_its_measurements(serve: Serve, open_page: Open, rows: OwnedRows) -> None:
    run_round(rows, "w0", 20.0, failures=2)
    page = open_page(f"{serve()}#/jobs/{rows.job_id}/tasks/0")
    page.get_by_role("img", name="3 trials, 2 failed, best 20 µs").wait_for()
    rows_shown = page.get_by_role("group", name="Measurements").locator("tbody tr")
    rows_shown.first.wait_for()
    assert rows_shown.count() == 3


def test_ten_thousand_tasks_are_scrolled_with_few_rows_drawn(
    serve: Serve, open_page: Open, rows: OwnedRows
) -> None:
    keys = [f"many{number}" for number in range(MANY)]

    def fill(session: Session) -> str:
        rows.workloads |= Workloads(session).ensure_many([new_workload(key) for key in keys])
        job_id = rows.add_job(session, "local", ())
        tasks = [NewTask(at, f"task{at}", 1, rows.workloads[key], "matmul") for at, key in enumerate(keys)]
        Tasks(session).add_many(job_id, tasks)
        return job_id

    page = open_page(f"{serve()}#/jobs/{rows.write(fill)}?tasks=index")
    box = page.get_by_role("group", name="Tasks")
    box.get_by_role("link", name="task0", exact=True).wait_for()
    assert box.locator("table").get_attribute("aria-rowcount") == str(MANY + 1)
    assert box.locator("tbody tr").count() < DRAWN_ROWS
    box.evaluate("element => { element.scrollTop = element.scrollHeight }")
    box.get_by_role("link", name=f"task{MANY - 1}", exact=True).wait_for()
    assert box.locator("tbody tr").count() < DRAWN_ROWS
