"""`mallorn jobs explain`: the decision log in words."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from rich.console import Console
from typer.testing import Result

from mallorn import Client
from mallorn.cli.terminal.output import table
from mallorn.core.states import JobState, RoundState, Waiting
from mallorn.core.values.decision_log import LoggedRound
from mallorn.db.repositories.cost_models import CostModels, NewCostModel
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.rounds import Rounds
from mallorn.db.repositories.tasks import Tasks
from mallorn.wording.decision_log import ROUND_COLUMNS, log_lines, log_rows
from tests.fixtures.answers import mallorn, refused
from tests.fixtures.coordinator import Coordinator, OwnedRows
from tests.fixtures.decision_log import FIRST_PASS, looked_ahead, open_round, run_round

Explain = Callable[..., Result]


@pytest.fixture
def explain(named_coordinator: Coordinator, owned: OwnedRows) -> Explain:
    """Types `mallorn jobs explain` for the job."""
    return partial(mallorn, "jobs", "explain", owned.job_id)


@pytest.fixture
def tuned(owned: OwnedRows) -> OwnedRows:
    """Two rounds of the first pass, then three that looked ahead."""
    run_round(owned, "w0", [30.0, 40.0], FIRST_PASS)
    run_round(owned, "w1", [1200.0, None], FIRST_PASS)
    run_round(owned, "w1", [1100.0, None], looked_ahead(1080.0, 1210.0))
    run_round(owned, "w0", [28.0, 50.0], looked_ahead(29.0, 33.0, "its sibling gained"))
    run_round(owned, "w0", [35.0, 50.0], looked_ahead(27.0, 36.0))
    return owned


def lines(result: Result) -> list[str]:
    assert result.exit_code == 0, result.stderr
    return result.stdout.splitlines()


def without_seconds(line: str) -> str:
    return line.rpartition(" in ")[0]


def test_every_round_is_a_line_and_the_first_pass_stands_together(explain: Explain, tuned: OwnedRows) -> None:
    shown = lines(explain())
    assert shown[0] == "first pass: first visit; 2 tasks, 4 trials"
    assert [without_seconds(line) for line in shown[1:6]] == [
        "  round 0  w0 x1  2 trials: found 30.0 us",
        "  round 1  w1 x2  2 trials: found 1.200 ms; total 2.430 ms",
        "round 2  w1 x2  2 trials: worth most; expected 1.080 to 1.210 ms, found 1.100 ms (in); "
        "total 2.430 -> 2.230 ms",
        "round 3  w0 x1  2 trials: its sibling gained; expected 29.0 to 33.0 us, found 28.0 us (out); "
        "total 2.230 -> 2.228 ms",
        "round 4  w0 x1  2 trials: worth most; expected 27.0 to 36.0 us, found 35.0 us (in); total 2.228 ms",
    ]


def test_a_round_that_a_base_proposed_says_so(explain: Explain, owned: OwnedRows) -> None:
    for family in ("base:matmul", "operator:matmul"):
        new = NewCostModel(family, owned.target_id, "xgboost", 0, 8, {}, b"model")
        model_id = owned.write(lambda session, new=new: CostModels(session).add(new).id)
        run_round(owned, "w0", [30.0, 40.0], FIRST_PASS, cost_model_id=model_id)
    first, second = lines(explain())[1:3]
    assert "2 trials: first round proposed by base:matmul/xgboost@1; found 30.0 us" in first
    assert "proposed by" not in second


def test_the_summary_shares_the_budget_and_judges_the_forecasts(explain: Explain, tuned: OwnedRows) -> None:
    rest = "the space has no untried candidates"
    task_id = tuned.read(lambda session: Tasks(session).list(tuned.job_id)[1].id)
    tuned.write(lambda session: Tasks(session).retire({task_id: rest}))
    why = "the budget of 64 trials is spent"
    tuned.write(
        lambda session: Jobs(session).move_to_state(tuned.job_id, [JobState.TUNING], JobState.DONE, why)
    )
    shown = lines(explain())
    heads = [line.split() for line in shown[shown.index("") + 2 :]]
    w0, w1 = heads[:2]
    assert w0 == ["0", "w0", "x1", "3", "6", "60%", "2.0", "us", "1%"]
    assert w1 == ["1", "w1", "x2", "2", "4", "40%", "200.0", "us", "99%"]
    ending = shown[-5:]
    assert ending[0].startswith("budget:    10 of 64 trials in 5 rounds; total 2.228 ms, 202.0 us won")
    assert ending[1] == "policy:    dynatune; rounds: 2 by first-pass, 3 by dynatune"
    assert ending[2].startswith("forecasts: 2 of 3 held what was found (67%")
    assert ending[3:] == [f"at rest:   task 1 w1: {rest}", f"job:       done: {why}"]


def test_rounds_that_are_not_done_say_how_they_stand(explain: Explain, owned: OwnedRows) -> None:
    reason = looked_ahead(1.0, 2.0)
    run_round(owned, "w0", [None, None], reason)
    run_round(owned, "w0", [], reason)
    run_round(owned, "w0", [5.0], reason, RoundState.POISON)
    run_round(owned, "w0", [5.0], reason, RoundState.CANCELLED)
    leased = open_round(owned, "w0", reason)
    owned.write(lambda session: Rounds(session).claim(leased, "host:1", 60))
    open_round(owned, "w1", reason)
    shown = "\n".join(lines(explain())[:6])
    for said in (
        "nothing valid, 2 failed in ",
        "nothing left to try",
        "1 of 2 trials: worth most; expected 1.0 to 2.0 us, given up: worker died; total 5.0 us in ",
        "1 of 2 trials: worth most; expected 1.0 to 2.0 us, cancelled; total 5.0 us in ",
        "0 of 2 measured by host:1",
        "waits for a worker",
    ):
        assert said in shown
    assert "long story" not in shown


def test_a_log_is_cut_to_a_task_or_to_the_newest_rounds(explain: Explain, tuned: OwnedRows) -> None:
    def indices(*words: str) -> list[int]:
        return [row["index"] for row in json.loads(explain(*words, "--json").stdout)["rounds"]]

    assert indices("--task", "1") == [1, 2]
    assert indices("--last", "2") == [3, 4]
    assert indices("--task", "0", "--last", "2") == [3, 4]
    refused(explain("--task", "7"), f"next:  mallorn jobs tasks {tuned.job_id}")


def test_json_holds_all_and_python_gets_the_same_rows(
    explain: Explain, tuned: OwnedRows, coordinator: Coordinator
) -> None:
    data = json.loads(explain("--json").stdout)
    with Client(coordinator.url) as client:
        job = client.job(tuned.job_id)
        assert job.explain() == [LoggedRound.model_validate(row) for row in data["rounds"]]
        assert [row.index for row in job.rounds(task=1)] == [2, 1]
    told = coordinator.http.get(f"/jobs/{tuned.job_id}/rounds", params={"order": "oldest"}).json()["items"]
    assert [told.items() <= row.items() for told, row in zip(told, data["rounds"], strict=True)] == [True] * 5
    assert data["summary"]["forecasts"] == {"judged": 3, "held": 2, "share": 2 / 3}
    assert data["rounds"][2]["forecast"]["gain_probability"] == 0.4


WAITING = [
    (JobState.QUEUED, "", "waits for a worker"),
    (JobState.TUNING, "waits for a device for llvm", "waits for a device for llvm"),
    (JobState.TUNING, "", "waits for the planner"),
    (JobState.FAILED, "no operator Foo", "no operator Foo"),
    (JobState.PAUSED, "", "mallorn resume"),
    (JobState.CANCELLED, "", "mallorn show"),
]


@pytest.mark.parametrize(("state", "because", "said"), WAITING)
def test_a_job_without_rounds_says_what_it_waits_for(
    explain: Explain, owned: OwnedRows, state: JobState, because: str, said: str
) -> None:
    ended_because = because if state.is_final else ""
    owned.write(
        lambda session: Jobs(session).move_to_state(owned.job_id, [JobState.TUNING], state, ended_because)
    )
    owned.write(lambda session: Jobs(session).set_waiting(owned.job_id, Waiting(because)))
    result = explain()
    assert (result.exit_code, result.stdout) == (0, "")
    assert f"no rounds yet: the job is {state}; " in result.stderr
    assert said in result.stderr
    assert json.loads(explain("--json").stdout)["rounds"] == []


@pytest.mark.usefixtures("named_coordinator")
def test_an_unknown_job_is_explained() -> None:
    refused(mallorn("jobs", "explain", "nope"), "there is no job nope", "next:  mallorn jobs")


def told(**changes: Any) -> LoggedRound:
    row: dict[str, Any] = {
        "index": 7,
        "task_index": 0,
        "task_name": "conv[2d]",
        "weight": 3,
        "size": 16,
        "trials": 16,
        "failures": 0,
        "policy": "round-robin",
        "proposal": None,
        "why": "its turn",
        "forecast": None,
        "best_us": 9.5,
        "is_in_interval": None,
        "state": "done",
        "seconds": 3.94,
        "total_before_us": None,
        "total_after_us": None,
    }
    return LoggedRound.model_validate(row | changes)


def test_a_terminal_gets_a_table_of_the_same_words() -> None:
    console = Console(record=True, width=120)
    first_pass = [told(index=at, policy="first-pass", why="first visit") for at in (5, 6)]
    console.print(table(log_rows([*first_pass, told()]), ROUND_COLUMNS))
    heading, fifth, _, seventh = [line.split() for line in console.export_text().splitlines()[1:]]
    assert heading == ["5", "to", "6", "1", "tasks", "32", "first", "visit"]
    assert fifth == ["5", "conv[2d]", "x3", "16", "found", "9.5", "us", "3.9"]
    assert seventh == ["7", "conv[2d]", "x3", "16", "its", "turn", "found", "9.5", "us", "3.9"]


def test_what_a_round_went_on_without_is_told_with_its_reason() -> None:
    lost = {"name": "my_package:Mine", "reason": "the searcher my_package:Mine raised ValueError: no\nmore"}
    (line,) = log_lines([told(reason={"why": "its turn", "skipped_parts": [lost]})])
    assert "its turn; without my_package:Mine: the searcher my_package:Mine raised ValueError: no;" in line
    (row,) = log_rows([told(policy="first-pass", reason={"skipped_parts": [lost]})])
    assert "without my_package:Mine" in row.why


def test_a_single_first_visit_needs_no_heading() -> None:
    (line,) = log_lines([told(policy="first-pass", why="first visit")])
    assert line == "round 7  conv[2d] x3  16 trials: first visit; found 9.5 us in 3.9 s"
