"""A report: complete, inert, and readable whatever the job has."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mallorn import Client
from mallorn.core.outcomes import Outcome
from mallorn.core.values.dataset import Record
from mallorn.core.values.decision_log import LoggedRound
from mallorn.db.repositories.jobs import Jobs
from mallorn.report.notebook_card import card
from mallorn.report.report_page import Failure, ReportData, grouped, render_report_page
from mallorn.report.style_and_csp import scope_style_rules
from tests.fixtures.answers import data, mallorn, refused
from tests.fixtures.coordinator import Coordinator, OwnedRows
from tests.fixtures.decision_log import FIRST_PASS, looked_ahead, run_round
from tests.fixtures.markup import assert_inert
from tests.fixtures.told import told_job, told_round, told_task

EVIL = """</pre></details><script>alert("1")</script><img src=x onerror='alert(2)'>"""
TIMING = {"median": 2000.0, "low": 1900.0, "high": 2100.0}
REPORT = {
    "latency_us": {"untuned": {**TIMING, "median": 50_000.0}, "tuned": TIMING},
    "schedule_count": 2,
    "workload_count": 2,
}


def story(word: str = "plain", **changes: Any) -> ReportData:
    job = told_job(name=word, ended_because=word, target=word, report=REPORT, **changes)
    tasks = [told_task(0, 10.0, name=word, reason=word, family=word), told_task(1, 20.0, name=word)]
    rounds = [
        told_round(0, 0, 90.0, why=word, task_name=word),
        told_round(1, 1, 20.0, why=word, cost_model=word),
        told_round(2, 0, 10.0, before_us=90.0, why=word, state="poison", error=word),
    ]
    failures = [Failure("build_error", word, 2, (word,), f"{word}\nmore {word}")]
    logged = [LoggedRound(**dict(row), total_after_us=110.0) for row in rounds]
    return ReportData(job, tasks, logged, failures)


def test_every_part_is_there() -> None:
    found = assert_inert(render_report_page(story(), 0.0))
    for words in (
        "plain: job 0123456789abcdef",
        "written by Mallorn",
        "1970-01-01 00:00 UTC",
        "TVM, tuned by Mallorn",
        "25.0",
        "Best so far",
        "time since submit",
        "Weighted Latency (us)",
        "3 rounds",
        "build_error",
        "mallorn schedules 0123456789abcdef --out tuned",
    ):
        assert words in found.text, words
    assert found.tags.count("svg") == 2


def test_what_stock_found_is_told_where_its_logs_tell_of_a_task() -> None:
    assert "tock's" not in assert_inert(render_report_page(story(), 0.0)).text
    known, untimed = told_task(0, 10.0, stock_us=15.0, weight=2), told_task(1, None, stock_us=7.0)
    found = assert_inert(render_report_page(replace(story(), tasks=[known, untimed, told_task(2)]), 0.0)).text
    assert "Stock's logs (us)" in found
    assert "30.0 us for 1 task, on a host that its logs do not name; 20.0 us here" in found


def test_what_the_job_says_is_text_whatever_it_says() -> None:
    found = assert_inert(render_report_page(story(EVIL), 0.0))
    assert found.text.count('<script>alert("1")</script>') >= 12
    assert found.tags.count("h2") == 7


POOR = {"level": "poor", "summary": "4.0 times slower than onnxruntime", "next_command": "mallorn resume j1"}


def test_the_verdict_stands_on_top_and_is_coloured_by_its_level() -> None:
    written = render_report_page(story(verdict=POOR), 0.0)
    text = assert_inert(written).text
    assert text.index("4.0 times slower") < text.index("mallorn resume j1") < text.index("Summary")
    assert 'class="verdict poor"' in written
    assert "4.0 times slower" in card(told_job(verdict=POOR), [], [])


def test_what_was_left_undone_the_conditions_and_warnings_are_told() -> None:
    missed = {"step": "timing", "reason": "no memory", "hint": ""}
    report = {**REPORT, "skipped_steps": [missed], "conditions": {"steady": False, "note": "a busy host"}}
    odd = {"source": "search", "message": "it raised", "hint": "", "count": 1}
    told = replace(story(warnings=[odd]), job=told_job(report=report, warnings=[odd]))
    text = assert_inert(render_report_page(told, 0.0)).text
    for words in ("not done: timing: no memory", "a busy host", "warning: search: it raised"):
        assert text.count(words) == 1, words


def test_what_answered_for_each_task_is_told_where_nothing_was_measured() -> None:
    answer = {
        "source": "near",
        "basis": "carried from <b>near</b>",
        "confidence": "likely",
        "expected_us": 12.0,
    }
    job = told_job(
        report={"unmeasured_schedules": {"dense": answer}, "workload_count": 1, "schedule_count": 1}
    )
    text = assert_inert(render_report_page(replace(story(), job=job), 0.0)).text
    for words in ("What answered", "dense", "near", "likely", "12.0 us", "carried from <b>near</b>"):
        assert words in text, words
    assert "What answered" not in assert_inert(render_report_page(story(), 0.0)).text


def test_light_and_dark_follow_the_system() -> None:
    assert "prefers-color-scheme: dark" in render_report_page(story(), 0.0)


def test_a_job_that_has_nothing_yet_has_a_report_too() -> None:
    job = told_job("importing", progress={"trials": 48, "tasks": 2, "tasks_measured": 2})
    text = assert_inert(render_report_page(ReportData(job, [], [], []), 0.0)).text
    assert "No candidate failed." in text
    assert "it is importing" in text
    assert "Best so far" not in text


def record(outcome: str, error: str, task: str) -> Record:
    return Record(id=1, outcome=Outcome(outcome), error=error, workload_name=task)


def test_failures_in_the_same_words_are_counted_together() -> None:
    failed = [
        record("run_error", "crash\nat 1", "conv"),
        record("run_error", "crash\nat 2", "dense"),
        record("build_error", "crash", "conv"),
        record("build_error", "not compiled: unrolled it writes in 900 places", "conv"),
    ]
    assert [(f.outcome, f.count, f.tasks, f.example) for f in grouped(failed)] == [
        ("run_error", 2, ("conv", "dense"), "crash\nat 1"),
        ("build_error", 1, ("conv",), "crash"),
    ]


@pytest.fixture
def tuned(owned: OwnedRows) -> OwnedRows:
    run_round(owned, "w0", [30.0, 40.0], FIRST_PASS)
    run_round(owned, "w1", [1200.0, None], FIRST_PASS)
    run_round(owned, "w1", [1100.0, None], looked_ahead(1080.0, 1210.0))
    owned.write(lambda session: Jobs(session).store_report_columns(owned.job_id, report=REPORT))
    return owned


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_the_command_writes_one_file(
    named_coordinator: Coordinator, tuned: OwnedRows, tmp_path: Path
) -> None:
    file = tmp_path / "report.html"
    result = mallorn("jobs", "report", tuned.job_id, "-o", file)
    assert (result.exit_code, result.stdout.strip()) == (0, str(file)), result.stderr
    text = assert_inert(file.read_text()).text
    assert "2.230 ms" in text
    assert "build_error2fused_w1no" in text
    assert data(mallorn("jobs", "report", tuned.job_id, "-o", file, "--json")) == {"file": str(file)}
    refused(mallorn("jobs", "report", tuned.job_id, "-o", tmp_path), "choose another --out")


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_notebook_shows_the_job_as_it_stands_now(coordinator: Coordinator, tuned: OwnedRows) -> None:
    with Client(coordinator.url) as client:
        job = client.job(tuned.job_id)
        run_round(tuned, "w0", [28.0], FIRST_PASS)
        found = assert_inert(job._repr_html_())
    assert "tuning" in found.text
    assert "7 of 64" in found.text
    assert "w1" in found.text
    assert "svg" in found.tags


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_notebook_without_a_coordinator_shows_what_was_last_known(
    coordinator: Coordinator, owned: OwnedRows
) -> None:
    client = Client(coordinator.url)
    job = client.job(owned.job_id)
    job.status = job.status.model_copy(update={"name": EVIL})
    job._connection.url = "http://127.0.0.1:1"
    job._connection._http.base_url = "http://127.0.0.1:1"  # type: ignore[assignment]
    text = assert_inert(job._repr_html_()).text
    client.close()
    assert "last known: no coordinator answers" in text
    assert EVIL in text


def test_a_cards_rules_reach_nothing_else() -> None:
    selectors = [line.partition("{")[0].split(",") for line in scope_style_rules(".mallorn-job").splitlines()]
    assert len(selectors) > 10
    assert all(each.strip().startswith(".mallorn-job ") for line in selectors for each in line)


def test_what_was_simulated_is_told_of_a_simulation_alone() -> None:
    options = {"measurer": "simulated", "simulated": {"seed": 0, "device_sec": 0.5, "failure_rate": 0.0}}
    assert "device_sec 0.5" in assert_inert(render_report_page(story(options=options), 0.0)).text
    assert (
        "device_sec"
        not in assert_inert(render_report_page(story(options=options | {"measurer": "tvm"}), 0.0)).text
    )
