"""A line an event, in one of two forms, with what it is about."""

import io
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextvars import copy_context

import pytest
from pydantic import ValidationError

from mallorn.core.log_setup import add_log_facts, log_facts, set_up
from mallorn.core.settings import Settings
from tests.fixtures.command_line import TIMEOUT_SEC, clean_environment
from tests.fixtures.coordinator import Coordinator

log = logging.getLogger("mallorn.workers.round.run")


class Written:
    """What goes to stderr from now on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._text = io.StringIO()
        self._monkeypatch = monkeypatch

    def set_up(self, **settings: str) -> None:
        logging.getLogger().handlers.clear()  # pytest's own are not ours to close
        self._monkeypatch.setattr(sys, "stderr", self._text)
        set_up("worker", Settings.model_validate(settings))

    def lines(self) -> list[str]:
        return self._text.getvalue().splitlines()

    def objects(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.lines()]


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Iterator[Written]:
    root = logging.getLogger()
    level = root.level
    yield Written(monkeypatch)
    logging.captureWarnings(False)
    root.handlers[:] = [handler for handler in root.handlers if type(handler) is not logging.StreamHandler]
    root.setLevel(level)


def test_json_has_level_time_part_and_what_it_is_about(written: Written) -> None:
    written.set_up(log_format="json")
    with log_facts(round=7):
        add_log_facts(job="1f", attempt=2)
        log.warning("handed back: %s", 'a "word"\nand another')
    (line,) = written.objects()
    assert line.pop("time").endswith("Z")
    assert line.pop("pid")
    assert line == {
        "level": "warning",
        "part": "worker",
        "logger": "mallorn.workers.round.run",
        "message": 'handed back: a "word"\nand another',
        "job": "1f",
        "round": 7,
        "attempt": 2,
    }


def test_a_traceback_is_one_field_of_one_line(written: Written) -> None:
    written.set_up(log_format="json")
    try:
        raise ValueError("gone wrong")
    except ValueError:
        log.exception("failed")
    (line,) = written.objects()
    assert line["level"] == "error"
    assert "ValueError: gone wrong" in str(line["error"])


def test_text_ends_with_what_it_is_about(written: Written) -> None:
    written.set_up()
    with log_facts(job="1f", attempt=1):
        log.info("begun")
    log.info("idle")
    begun, idle = written.lines()
    assert begun.endswith("INFO worker mallorn.workers.round.run: begun (job=1f attempt=1)")
    assert idle.endswith("INFO worker mallorn.workers.round.run: idle")


def test_facts_end_with_their_block(written: Written) -> None:
    written.set_up(log_format="json")
    with log_facts(job="outer"):
        with log_facts(round=1):
            add_log_facts(attempt=3)
        log.info("after")
    assert {"job"} == written.objects()[0].keys() & {"job", "round", "attempt"}


def test_a_thread_in_a_copy_of_the_context_is_about_the_same(written: Written) -> None:
    written.set_up(log_format="json")
    with log_facts(job="1f"):
        thread = threading.Thread(target=copy_context().run, args=(log.info, "from a thread"))
    thread.start()
    thread.join()
    assert written.objects()[0]["job"] == "1f"


def test_the_level_is_a_setting_in_any_letters(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLORN_LOG_LEVEL", "WARNING")
    written.set_up()
    log.info("chatter")
    log.warning("news")
    assert len(written.lines()) == 1
    monkeypatch.setenv("MALLORN_LOG_LEVEL", "loud")
    with pytest.raises(ValidationError):
        Settings()


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_request_is_about_its_job(coordinator: Coordinator, written: Written) -> None:
    job_id = coordinator.submit().json()["id"]
    written.set_up(log_format="json")
    coordinator.http.get(f"/jobs/{job_id}")
    coordinator.http.get("/jobs")
    asked, listed = [line for line in written.objects() if line["logger"] == "uvicorn.access"]
    assert asked["job"] == job_id
    assert "job" not in listed


CELERY = """
import os, signal
from celery.signals import worker_ready
from mallorn.core.log_setup import set_up
from mallorn.core.settings import settings
set_up("worker", settings())
from mallorn.stack.run_celery import run_worker
from celery import Celery
app = Celery("a", broker="memory://", set_as_current=False)
app.conf.worker_hijack_root_logger = False
@worker_ready.connect
def stop(**_):
    os.kill(os.getpid(), signal.SIGTERM)
run_worker(app, ["q"], "w")
"""


def test_celery_logs_as_everyone_does() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", CELERY],
        env=clean_environment(MALLORN_LOG_FORMAT="json"),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SEC,
    )
    assert "[config]" not in ran.stdout, "no banner"
    lines = [json.loads(line) for line in ran.stderr.splitlines()]
    assert any("ready" in line["message"] for line in lines), ran.stderr
    assert {line["part"] for line in lines} == {"worker"}
