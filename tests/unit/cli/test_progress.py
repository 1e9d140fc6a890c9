"""The live view and the small readers of the command line."""

import io
import sys
import time
from collections.abc import Iterator
from operator import itemgetter
from typing import Any

import pytest
from rich.console import Console

from mallorn.cli import live_view
from mallorn.cli.live_view import Eta, format_coarse_time, show_until_ended
from mallorn.cli.terminal.job_options import parse_input_shape, parse_options
from mallorn.cli.terminal.output import print_error, stdout, table
from mallorn.client.job import Job
from mallorn.client.progress_lines import (
    FirstExport,
    LineView,
    advise_on_budget,
    completed_share,
    describe_best_latency,
    summary,
)
from mallorn.core.device_wait_hint import ServiceAddress, describe_waiting
from mallorn.core.errors import InvalidRequest, Unavailable
from mallorn.core.values.decision_log import RoundStatus
from mallorn.core.values.job import JobStatus, JobStep, TaskStatus
from mallorn.wording.format_values import (
    Column,
    cell,
    describe_budget,
    describe_headroom,
    format_age,
    format_duration,
    format_latency,
    format_spent_trials,
)
from tests.fixtures.kept import Kept
from tests.fixtures.told import told_round, told_task


def job(
    state: str,
    trials: int = 0,
    best_us: float | None = None,
    waiting_because: str = "",
    step: JobStep | None = None,
    budget: int | None = 64,
    **changes: Any,
) -> JobStatus:
    known = {"tasks": 2, "tasks_measured": 2, "estimated_us": best_us}
    done = {"step": step, "trials": trials, "failures": {"run_error": 2} if trials else {}, **known}
    fields = {
        "id": "j",
        "state": state,
        "trials": budget,
        "minutes": None,
        "waiting_because": waiting_because,
        "created_at": 1000.0,
    }
    return JobStatus.model_validate({**fields, "progress": done, **changes})


def partly(
    measured: int, tasks: int, best_us: float | None, state: str = "tuning", trials: int = 16, **changes: Any
) -> JobStatus:
    """A job some of whose tasks were timed."""
    known = {"tasks": tasks, "tasks_measured": measured, "estimated_us": best_us}
    return job(state, progress={"trials": trials, "failures": {"run_error": 2}, **known}, **changes)


class Scripted(Job):
    """A job whose coordinator answers from a list; None is a connection that breaks."""

    def __init__(self, *answers: JobStatus | None) -> None:
        self.status = job("queued")
        self._answers = list(answers)

    def refresh(self) -> JobStatus:
        answer = self._answers.pop(0)
        if answer is None:
            raise Unavailable()
        self.status = answer
        return answer

    def tasks(self) -> list[TaskStatus]:
        return [told_task(0)]

    def rounds(
        self, task: int | None = None, order: str = "newest", page_size: int = 500
    ) -> Iterator[RoundStatus]:
        yield told_round(0, 0, 8.0)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_view, "REFRESH_SEC", 0.0)


class Exported(FirstExport):
    """A first export that is there from the start."""

    def announce_first_export(self, status: JobStatus) -> str:
        line, self.to = str(self.to), ""
        return line


def watched(handle: Job, terminal: bool, verbose: bool = False, first: str = "") -> str:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=160)
    show_until_ended({"": Exported(handle, first)}, console, verbose)
    assert handle.status.state == "done"
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_log_gets_a_line_where_something_happens() -> None:
    waiting = job("tuning", waiting_because="waits for a [device]")
    scripted = Scripted(waiting, waiting, job("tuning", 16, 1234.5), job("done", 64, 900.0))
    assert watched(scripted, terminal=False).splitlines() == [
        "tuning  0/64 trials  waits for a [device]",
        "tuning  16/64 trials  best 1.234 ms  2 failed",
        "done  64/64 trials  2 failed",
    ]


def test_a_log_gets_a_line_for_every_tenth_of_the_way_and_not_for_every_step() -> None:
    tuned = [job("tuning", spent, 900.0, budget=400) for spent in range(0, 400, 4)]
    steps = [JobStep(name="tasks are checked", done=count, total=28) for count in range(1, 29)]
    checks = [job("finishing", 64, step=step) for step in steps]
    lines = watched(Scripted(*tuned, *checks, job("done", 64)), terminal=False).splitlines()
    assert len([line for line in lines if line.startswith("tuning")]) == 10
    assert len([line for line in lines if line.startswith("finishing")]) == 11
    assert "tasks are checked: 28 of 28" in lines[-2]


def test_a_log_is_never_silent_for_long_while_something_changes() -> None:
    now = iter([0.0, 10.0, 20.0, 35.0, 70.0])
    console = Console(file=io.StringIO(), width=160)
    view = LineView(console.print, clock=lambda: next(now))
    for spent in (1, 2, 3, 4, 4):
        view.show(job("tuning", spent, 900.0))
    assert isinstance(console.file, io.StringIO)
    assert [line.split()[1] for line in console.file.getvalue().splitlines()] == ["1/64", "4/64"]


def test_a_long_step_of_a_finish_says_every_ten_seconds_how_long_it_takes() -> None:
    now = iter([0.0, 5.0, 10.0, 15.0, 21.0, 22.0])
    console = Console(file=io.StringIO(), width=160)
    view = LineView(console.print, clock=lambda: next(now))
    compiling, checking = JobStep(name="the model is compiled"), JobStep(name="outputs are checked")
    for step in (compiling, compiling, compiling, compiling, compiling, checking):
        view.show(job("finishing", 64, step=step))
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().splitlines() == [
        "finishing  64/64 trials  2 failed  the model is compiled",
        "finishing  64/64 trials  2 failed  the model is compiled  for 10 s",
        "finishing  64/64 trials  2 failed  the model is compiled  for 21 s",
        "finishing  64/64 trials  2 failed  outputs are checked",
    ]


def test_a_log_never_says_the_same_twice() -> None:
    console = Console(file=io.StringIO(), width=160)
    view = LineView(console.print)
    for created_at in (0.0, time.time() - 60.0):  # a tenth of the minutes goes by, and nothing else
        view.show(job("tuning", 3, 900.0, budget=None, minutes=2.0, created_at=created_at))
    assert isinstance(console.file, io.StringIO)
    assert len(console.file.getvalue().splitlines()) == 1


FEW = partly(0, 28, None, trials=0, budget=60)
SOME = FEW.model_copy(update={"options": FEW.options.model_copy(update={"only": ("conv2d*",)})})
ANSWERED = job("finishing", budget=0)
AHEAD = {"current_us": 2000.0, "limit_us": 1500.0, "expected_us": 1800.0, "gain": 0.031, "trials": 48}
OVER = job("done", 64, budget=None, outlook=AHEAD | {"limit_us": None, "trials": 0})
# The line of a job, its time, its budget, what it has spent and what is advised: tests/kept/progress.txt.
JOBS = {
    "nothing is known": job("tuning"),
    "queued without a reason": job("queued"),
    "finishing without a step": job("finishing"),
    "no sum of tasks yet": partly(3, 28, None),
    "a sum that leaves a task out": partly(27, 28, 900.0),
    "a sum of all tasks": partly(28, 28, 900.0),
    "what is found wrong in the finish is taken out of the sum": partly(28, 28, 950.0, "finishing"),
    "a small budget": FEW,
    "a budget that is large enough": partly(0, 28, None, trials=0, budget=28 * 16),
    "a job whose number of tasks is unknown": SOME,
    "trials and minutes": job("tuning", 16, minutes=60.0),
    "minutes alone": job("tuning", 16, minutes=60.0, budget=None),
    "a job that measures nothing": ANSWERED.model_copy(
        update={"options": ANSWERED.options.model_copy(update={"mode": "zero-shot"})}
    ),
    "a job that ends by itself": job("tuning", 16, budget=None),
    "a job that ends by itself, with an outlook": job("tuning", 16, budget=None, outlook=AHEAD),
    "a job that has ended by itself": OVER,
}


def test_what_a_line_tells_of_a_job(kept: Kept) -> None:
    parts = (summary, describe_best_latency, describe_budget, format_spent_trials, describe_headroom)
    kept(
        "progress",
        {
            state: "\n".join(part(status) for part in (*parts, advise_on_budget) if part(status))
            for state, status in JOBS.items()
        },
    )


def test_the_share_of_a_job_that_ends_by_itself_is_what_its_planner_expects() -> None:
    ahead = JOBS["a job that ends by itself, with an outlook"]
    assert (completed_share(ahead), ahead.expected_trials) == (0.25, 64)
    assert completed_share(JOBS["a job that ends by itself"]) == 0.0


def test_a_small_budget_is_told_once() -> None:
    told = watched(Scripted(FEW, FEW, job("done", 60)), terminal=False)
    assert told.count(advise_on_budget(FEW)) == 1


def test_a_terminal_gets_a_bar() -> None:
    shown = watched(Scripted(job("tuning", 16, 900.0, "waits [x]"), job("done", 64)), terminal=True)
    assert "64/64" in shown
    assert "fused_dense" not in shown


@pytest.mark.parametrize("terminal", [False, True])
def test_a_first_export_is_told_in_a_line_that_stays(terminal: bool) -> None:
    scripted = Scripted(job("finishing", step=JobStep(name="times it")), job("finishing"), job("done"))
    told = watched(scripted, terminal, first="first export after 12 s: won")
    assert told.count("first export after 12 s: won\n") == 1


def test_verbose_adds_the_table_of_tasks() -> None:
    assert "fused_dense" in watched(Scripted(job("tuning"), job("done", 64)), terminal=True, verbose=True)


def test_a_coordinator_that_comes_back_is_followed_on() -> None:
    assert "done" in watched(Scripted(job("tuning"), None, None, job("done")), terminal=False)


def test_a_coordinator_that_stays_away_ends_the_view(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_view, "SILENCE_SEC", -1.0)
    with pytest.raises(Unavailable):
        watched(Scripted(None), terminal=False)


def test_the_view_of_a_service_that_has_ended_ends_at_once() -> None:
    def check_runs() -> None:
        raise Unavailable("the service on this machine has ended")

    scripted = Scripted(job("tuning"), None, job("done"))
    with pytest.raises(Unavailable, match="has ended"):
        show_until_ended({"": FirstExport(scripted, "")}, Console(), check_runs=check_runs)


def lefts(*looks: tuple[float, JobStatus]) -> list[str]:
    now = iter([now_sec for now_sec, _ in looks])
    pace = Eta(clock=lambda: next(now))
    return [pace.left(told) for _, told in looks]


def test_time_left_follows_from_the_trials_seen_and_holds_the_finish() -> None:
    # Ten seconds a trial and 28 to go, and 20 s for the finish of two tasks.
    seen = lefts((0.0, job("tuning", 32)), (40.0, job("tuning", 36)), (100.0, job("finishing", 64)))
    assert seen == ["", "about 5 min left", "less than a minute left"]


def test_time_left_only_falls_between_two_looks_at_the_same_trials() -> None:
    still = job("tuning", 36)
    seen = lefts((0.0, job("tuning", 32)), (40.0, still), (100.0, still), (220.0, still), (900.0, still))
    assert seen[1:] == [f"about {minutes} min left" for minutes in (5, 4, 2)] + ["less than a minute left"]


def test_one_slow_round_moves_the_time_left_a_little_only() -> None:
    looks = [(10.0 * n, job("tuning", 4 * n)) for n in range(9)]  # 2.5 s a trial, 32 left: 80 s
    slow = (170.0, job("tuning", 36))  # the ninth took 90 s
    *_, before, after = lefts(*looks, slow)
    assert (before, after) == ("about 2 min left", "about 1 min left")


def test_minutes_hold_the_finish_and_a_finish_lasts_as_long_as_the_one_before() -> None:
    assert lefts((1000.0 + 120.0, job("tuning", 8, minutes=10.0, budget=None))) == ["about 8 min left"]
    again = job("finishing", 64, report={"finish_sec": 300.0})
    assert lefts((0.0, again), (60.0, again), (400.0, again)) == ["about 5 min left", "about 4 min left", ""]


def test_a_pipe_gets_a_row_a_line_and_a_terminal_whole_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"job": "0123456789abcdef", "reason": "long words " * 12, "workload": "f" * 64}
    columns = [
        Column("JOB", itemgetter("job")),
        Column("REASON", itemgetter("reason")),
        Column("WORKLOAD", itemgetter("workload"), cut=True),
    ]
    monkeypatch.setattr("sys.stdout", io.StringIO())
    stdout().print(table([row], columns))
    assert len(sys.stdout.getvalue().splitlines()) == 2  # type: ignore[attr-defined]
    narrow = Console(file=io.StringIO(), width=60)
    narrow.print(table([row], columns))
    assert "0123456789abcdef" in narrow.file.getvalue()  # type: ignore[attr-defined]
    assert "…" in narrow.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (format_age(0.3), "now"),
        (format_age(75.2), "1:15 ago"),
        (format_coarse_time(7200.0), "about 2.0 h left"),
        *zip(
            map(format_duration, (0, 75.9, 3600, 3661)), ("0:00", "1:15", "1:00:00", "1:01:01"), strict=True
        ),
        *zip(
            map(format_latency, (None, 0.5, 999.94, 1000.0)),
            ("-", "0.5 us", "999.9 us", "1.000 ms"),
            strict=True,
        ),
        *zip(map(cell, (None, 1234.5, 0.125, 7)), ("-", "1,234", "0.125", "7"), strict=True),
    ],
)
def test_values_are_written_with_their_units(text: str, expected: str) -> None:
    assert text == expected


def test_an_error_is_printed_as_it_was_written(capsys: pytest.CaptureFixture[str]) -> None:
    print_error("cannot read [bold]", "type [this]")
    assert capsys.readouterr().err == "error: cannot read [bold]\nnext:  type [this]\n"


def test_options_are_nested_and_read_as_json_where_they_can_be() -> None:
    typed = ["search=random", "round_size=8", "evaluator.repeat=3", "evaluator.number=1", "warm_start=false"]
    assert parse_options(typed) == {
        "search": "random",
        "round_size": 8,
        "evaluator": {"repeat": 3, "number": 1},
        "warm_start": False,
    }
    assert parse_input_shape("a:b:2,3") == ("a:b", [2, 3])


@pytest.mark.parametrize("typed", ["x", "x:", ":1", "x:1,,2", "x:-1", "x:1.5"])
def test_a_shape_that_is_none_is_refused(typed: str) -> None:
    with pytest.raises(InvalidRequest, match="input shape"):
        parse_input_shape(typed)


@pytest.mark.parametrize("typed", [["=1"], ["a"], ["evaluator=1", "evaluator.repeat=2"]])
def test_an_option_that_is_none_is_refused(typed: list[str]) -> None:
    with pytest.raises(InvalidRequest, match="option"):
        parse_options(typed)


def test_a_job_that_no_device_here_can_serve_shows_its_command_once() -> None:
    waiting = describe_waiting("t", ServiceAddress("10.0.0.2:9190"), "it has no cuda device")
    waits = job("tuning", waiting_because=waiting.waiting_because, hint=waiting.hint, cause=waiting.cause)
    console = Console(file=io.StringIO(), width=300)
    scripted = Scripted(waits, waits, job("cancelled"))
    show_until_ended({"": FirstExport(scripted, "")}, console)
    assert isinstance(console.file, io.StringIO)
    told = console.file.getvalue()
    assert told.count("next: mallorn device --target 't' --tracker 10.0.0.2:9190") == 1


def test_a_job_that_the_service_paused_is_followed_no_longer() -> None:
    paused = job("paused", waiting_because="waited 10 minutes for a device", hint="mallorn device")
    console = Console(file=io.StringIO(), width=300)
    scripted = Scripted(paused)
    show_until_ended({"": FirstExport(scripted, "")}, console)
    assert scripted.status.state == "paused"
