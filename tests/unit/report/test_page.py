"""A report: complete, inert, and readable whatever the job has."""

from dataclasses import replace
from difflib import unified_diff
from pathlib import Path
from typing import Any

import pytest

from mallorn import Client, Job
from mallorn.client.http_connection import Connection
from mallorn.core.outcomes import Outcome
from mallorn.core.values.dataset import Record
from mallorn.core.values.decision_log import LoggedRound
from mallorn.core.version import VERSION
from mallorn.db.repositories.jobs import Jobs
from mallorn.report.notebook_card import card
from mallorn.report.report_page import Failure, ReportData, grouped, render_report_page
from mallorn.report.style_and_csp import scope_style_rules
from tests.fixtures.answers import data, mallorn, refused
from tests.fixtures.coordinator import Coordinator, OwnedRows
from tests.fixtures.decision_log import FIRST_PASS, looked_ahead, run_round
from tests.fixtures.kept import Kept
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


def page_text(data: ReportData) -> list[str]:
    """The text of a page, a piece a line; without the style and the version that wrote it."""
    pieces = (piece.strip() for piece in assert_inert(render_report_page(data, 0.0)).texts)
    return [piece.replace(VERSION, "VERSION") for piece in pieces if piece and "{" not in piece]


def answered() -> ReportData:
    answer = {
        "source": "near",
        "basis": "carried from <b>near</b>",
        "confidence": "likely",
        "expected_us": 12.0,
    }
    known = {"unmeasured_schedules": {"dense": answer}, "workload_count": 1, "schedule_count": 1}
    return replace(story(), job=told_job(report=known))


def undone() -> ReportData:
    missed = {"step": "timing", "reason": "no memory", "hint": ""}
    report = {**REPORT, "skipped_steps": [missed], "conditions": {"steady": False, "note": "a busy host"}}
    odd = {"source": "search", "message": "it raised", "hint": "", "count": 1}
    return replace(story(warnings=[odd]), job=told_job(report=report, warnings=[odd]))


POOR = {"level": "poor", "summary": "4.0 times slower than onnxruntime", "next_command": "mallorn resume j1"}
STOCK = [told_task(0, 10.0, stock_us=15.0, weight=2), told_task(1, None, stock_us=7.0), told_task(2)]
IMPORTING = told_job("importing", progress={"trials": 48, "tasks": 2, "tasks_measured": 2})
SIMULATED = {"measurer": "simulated", "simulated": {"seed": 0, "device_sec": 0.5, "failure_rate": 0.0}}
# The text of a report, by what its job is: tests/kept/report-page.txt.
PAGES = {
    "done": story(),
    "judged as poor": story(verdict=POOR),
    "stock's logs tell of a task": replace(story(), tasks=STOCK),
    "steps left undone, a busy host, and a warning": undone(),
    "nothing was measured": answered(),
    "nothing is there yet": ReportData(IMPORTING, [], [], []),
    "simulated": story(options=SIMULATED),
    "not simulated, with options of a simulation": story(options=SIMULATED | {"measurer": "tvm"}),
}


def test_what_a_report_tells(kept: Kept) -> None:
    done = page_text(PAGES["done"])
    # Of the others what differs from that.
    changes = {state: unified_diff(done, page_text(data), n=0) for state, data in PAGES.items()}
    texts = {
        state: [line for line in lines if line[:2] not in ("++", "--", "@@")]
        for state, lines in changes.items()
    }
    kept("report-page", {state: "\n".join(lines) for state, lines in (texts | {"done": done}).items()})
    assert assert_inert(render_report_page(story(), 0.0)).tags.count("svg") == 2


def test_what_the_job_says_is_text_whatever_it_says() -> None:
    found = assert_inert(render_report_page(story(EVIL), 0.0))
    assert found.text.count('<script>alert("1")</script>') >= 12
    assert found.tags.count("h2") == 7


def test_the_verdict_is_coloured_by_its_level_and_on_the_card() -> None:
    assert 'class="verdict poor"' in render_report_page(story(verdict=POOR), 0.0)
    assert POOR["summary"] in card(told_job(verdict=POOR), [], [])


def test_light_and_dark_follow_the_system() -> None:
    assert "prefers-color-scheme: dark" in render_report_page(story(), 0.0)


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
    known = coordinator.http.get(f"/jobs/{owned.job_id}").json() | {"name": EVIL}
    text = assert_inert(Job(Connection("http://127.0.0.1:1"), known)._repr_html_()).text
    assert "last known: no coordinator answers" in text
    assert EVIL in text


def test_a_cards_rules_reach_nothing_else() -> None:
    selectors = [line.partition("{")[0].split(",") for line in scope_style_rules(".mallorn-job").splitlines()]
    assert len(selectors) > 10
    assert all(each.strip().startswith(".mallorn-job ") for line in selectors for each in line)
