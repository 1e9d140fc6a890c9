"""The live view and the small readers of the command line."""

import io
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from rich.console import Console

from mallorn.commands import progress
from mallorn.commands.options import parse_input_shape, parse_options
from mallorn.commands.output import ago, cell, duration, latency, print_error, stdout, table
from mallorn.commands.progress import Pace, follow, summary
from mallorn.core.errors import InvalidRequest, Unavailable
from mallorn.job import Job
from mallorn.words import budget_words, spent_of
from tests.fixtures.told import told_round, told_task


def body(state: str, trials: int = 0, best_us: float | None = None, reason: str = "") -> dict[str, Any]:
    done = {"trials": trials, "failures": {"run_error": 2} if trials else {}, "estimated_us": best_us}
    fields = {"id": "j", "state": state, "trials": 64, "reason": reason, "created_at": 1000.0}
    return {**fields, "progress": done}


class Scripted(Job):
    """A job whose coordinator answers from a list; None is a connection that breaks."""

    def __init__(self, *answers: dict[str, Any] | None) -> None:
        self.body = body("queued")
        self._answers = list(answers)

    def refresh(self) -> dict[str, Any]:
        answer = self._answers.pop(0)
        if answer is None:
            raise Unavailable()
        self.body = answer
        return answer

    def tasks(self) -> list[dict[str, Any]]:
        return [told_task(0)]

    def rounds(
        self, task: int | None = None, order: str = "newest", page_size: int = 500
    ) -> Iterator[dict[str, Any]]:
        yield told_round(0, 0, 8.0)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "REFRESH_SEC", 0.0)


def watched(job: Job, terminal: bool, verbose: bool = False) -> str:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=160)
    final = follow(job, console, verbose)
    assert final["state"] == "done"
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_log_gets_a_line_for_every_change_and_no_more() -> None:
    waiting = body("tuning", reason="waits for a [device]")
    job = Scripted(waiting, waiting, body("tuning", 16, 1234.5), body("done", 64, 900.0))
    assert watched(job, terminal=False).splitlines() == [
        "tuning  0/64 trials  waits for a [device]",
        "tuning  16/64 trials  best 1.234 ms  2 failed",
        "done  64/64 trials  best 900.0 us  2 failed",
    ]


def test_a_terminal_gets_a_bar() -> None:
    shown = watched(Scripted(body("tuning", 16, 900.0, "waits [x]"), body("done", 64, 800.0)), terminal=True)
    assert "64/64" in shown
    assert "best 800.0 us" in shown
    assert "fused_dense" not in shown


def test_verbose_adds_the_table_of_tasks() -> None:
    assert "fused_dense" in watched(Scripted(body("tuning"), body("done", 64)), terminal=True, verbose=True)


def test_a_coordinator_that_comes_back_is_followed_on() -> None:
    assert "done" in watched(Scripted(body("tuning"), None, None, body("done")), terminal=False)


def test_a_coordinator_that_stays_away_ends_the_view(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SILENCE_SEC", -1.0)
    with pytest.raises(Unavailable):
        watched(Scripted(None), terminal=False)


def test_time_left_follows_from_the_trials_seen_so_far() -> None:
    now = iter([0.0, 10.0, 20.0, 30.0])
    pace = Pace(clock=lambda: next(now))
    assert [pace.left(spent, 64) for spent in (32, 32, 36, 64)] == ["", "", "2:20 left", ""]


def test_a_summary_leaves_out_what_is_not_known() -> None:
    assert summary(body("tuning")) == "tuning  0/64 trials"


def test_a_state_without_a_reason_says_what_it_is_busy_with() -> None:
    assert summary(body("queued")) == "queued  0/64 trials  waits for a worker"
    assert "times the whole model" in summary(body("finishing"))


def test_a_pipe_gets_a_row_a_line_and_a_terminal_whole_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"job": "0123456789abcdef", "reason": "long words " * 12, "workload": "f" * 64}
    columns = {"job": "JOB", "reason": "REASON", "workload": "WORKLOAD"}
    monkeypatch.setattr("sys.stdout", io.StringIO())
    stdout().print(table([row], columns))
    assert len(sys.stdout.getvalue().splitlines()) == 2  # type: ignore[attr-defined]
    narrow = Console(file=io.StringIO(), width=60)
    narrow.print(table([row], columns))
    assert "0123456789abcdef" in narrow.file.getvalue()  # type: ignore[attr-defined]
    assert "…" in narrow.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize(("seconds", "text"), [(0.3, "now"), (75.2, "1:15 ago")])
def test_how_long_ago(seconds: float, text: str) -> None:
    assert ago(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (75.9, "1:15"), (3600, "1:00:00"), (3661, "1:01:01")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("value_us", "text"), [(None, "-"), (0.5, "0.5 us"), (999.94, "999.9 us"), (1000.0, "1.000 ms")]
)
def test_latencies(value_us: float | None, text: str) -> None:
    assert latency(value_us) == text


@pytest.mark.parametrize(("value", "text"), [(None, "-"), (1234.5, "1,234"), (0.125, "0.125"), (7, "7")])
def test_cells(value: object, text: str) -> None:
    assert cell(value) == text


def test_an_error_is_printed_as_it_was_written(capsys: pytest.CaptureFixture[str]) -> None:
    print_error("cannot read [bold]", "type [this]")
    assert capsys.readouterr().err == "error: cannot read [bold]\nnext:  type [this]\n"


def test_options_are_nested_and_read_as_json_where_they_can_be() -> None:
    typed = ["search=random", "round_size=8", "evaluator.repeat=3", "evaluator.number=1", "warm_start=false"]
    assert parse_options(typed, ["x:1,3", "a:b:2"]) == {
        "search": "random",
        "round_size": 8,
        "evaluator": {"repeat": 3, "number": 1},
        "warm_start": False,
        "input_shapes": {"x": [1, 3], "a:b": [2]},
    }


@pytest.mark.parametrize("typed", ["x", "x:", ":1", "x:1,,2", "x:-1", "x:1.5"])
def test_a_shape_that_is_none_is_refused(typed: str) -> None:
    with pytest.raises(InvalidRequest, match="input shape"):
        parse_input_shape(typed)


@pytest.mark.parametrize("typed", [["=1"], ["a"], ["evaluator=1", "evaluator.repeat=2"]])
def test_an_option_that_is_none_is_refused(typed: list[str]) -> None:
    with pytest.raises(InvalidRequest, match="option"):
        parse_options(typed)


def test_a_budget_without_a_limit_of_trials_shows_no_number_for_it() -> None:
    job = {**body("tuning", 16), "minutes": 60.0}
    assert (budget_words(job), spent_of(job)) == ("64 trials or 60 minutes", "16 of 64")
    free = job | {"trials": None}
    assert (budget_words(free), spent_of(free, "/")) == ("60 minutes", "16, no limit")
