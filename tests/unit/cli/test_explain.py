"""`mallorn jobs explain`: the decision log in words."""

import io
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
from tests.fixtures.answers import Shell, mallorn
from tests.fixtures.coordinator import Coordinator, OwnedRows
from tests.fixtures.decision_log import FIRST_PASS, looked_ahead, open_round, run_round
from tests.fixtures.kept import Kept

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


def test_a_round_that_a_base_proposed_says_so(explain: Explain, owned: OwnedRows) -> None:
    for family in ("base:matmul", "operator:matmul"):
        new = NewCostModel(family, owned.target_id, "xgboost", 0, 8, {}, b"model")
        model_id = owned.write(lambda session, new=new: CostModels(session).add(new).id)
        run_round(owned, "w0", [30.0, 40.0], FIRST_PASS, cost_model_id=model_id)
    first, second = lines(explain())[1:3]
    assert "2 trials: first round proposed by base:matmul/xgboost@1; found 30.0 us" in first
    assert "proposed by" not in second


@pytest.mark.usefixtures("named_coordinator")
def test_every_round_is_a_line_and_the_summary_shares_the_budget(
    tuned: OwnedRows, shell: Shell, kept: Kept
) -> None:
    shell.names["JOB"] = tuned.job_id
    task_id = tuned.read(lambda session: Tasks(session).list(tuned.job_id)[1].id)
    tuned.write(lambda session: Tasks(session).retire({task_id: "the space has no untried candidates"}))
    why = "the budget of 64 trials is spent"
    tuned.write(
        lambda session: Jobs(session).move_to_state(tuned.job_id, [JobState.TUNING], JobState.DONE, why)
    )
    shell("five rounds", "jobs explain JOB")
    shell("refused", "jobs explain JOB --task 7", "jobs explain nope")
    kept("decision-log", shell.texts)


@pytest.mark.usefixtures("named_coordinator")
def test_rounds_that_are_not_done_say_how_they_stand(owned: OwnedRows, shell: Shell, kept: Kept) -> None:
    reason = looked_ahead(1.0, 2.0)
    run_round(owned, "w0", [None, None], reason)
    run_round(owned, "w0", [], reason)
    run_round(owned, "w0", [5.0], reason, RoundState.POISON)
    run_round(owned, "w0", [5.0], reason, RoundState.CANCELLED)
    leased = open_round(owned, "w0", reason)
    owned.write(lambda session: Rounds(session).claim(leased, "host:1", 60))
    open_round(owned, "w1", reason)
    shell.names["JOB"] = owned.job_id
    shell("rounds that are not done", "jobs explain JOB")
    kept("decision-log-open", shell.texts)


def test_a_log_is_cut_to_a_task_or_to_the_newest_rounds(explain: Explain, tuned: OwnedRows) -> None:
    def indices(*words: str) -> list[int]:
        return [row["index"] for row in json.loads(explain(*words, "--json").stdout)["rounds"]]

    assert indices("--task", "1") == [1, 2]
    assert indices("--last", "2") == [3, 4]
    assert indices("--task", "0", "--last", "2") == [3, 4]


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
    (JobState.QUEUED, ""),
    (JobState.TUNING, "waits for a device for llvm"),
    (JobState.TUNING, ""),
    (JobState.FAILED, "no operator Foo"),
    (JobState.PAUSED, ""),
    (JobState.CANCELLED, ""),
]


@pytest.mark.usefixtures("named_coordinator")
def test_a_job_without_rounds_says_what_it_waits_for(owned: OwnedRows, shell: Shell, kept: Kept) -> None:
    shell.names["JOB"] = owned.job_id
    for state, because in WAITING:
        ended = because if state.is_final else ""
        owned.write(
            lambda db, to=state, why=ended: Jobs(db).move_to_state(owned.job_id, list(JobState), to, why)
        )
        owned.write(lambda db, why=because: Jobs(db).set_waiting(owned.job_id, Waiting(why)))
        shell(f"{state}: {because or 'no reason'}", "jobs explain JOB")
    assert json.loads(mallorn("jobs", "explain", owned.job_id, "--json").stdout)["rounds"] == []
    kept("no-rounds-yet", shell.texts)


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


LOST = {"name": "my_package:Mine", "reason": "the searcher my_package:Mine raised ValueError: no\nmore"}
# The lines of a log and its table at a terminal, by what its rounds are: tests/kept/decision-log-rounds.txt.
LOGS = {
    "two first visits and a turn": [
        *(told(index=at, policy="first-pass", why="first visit") for at in (5, 6)),
        told(),
    ],
    "a round that went on without a part": [told(reason={"why": "its turn", "skipped_parts": [LOST]})],
    "a first visit without a part": [told(policy="first-pass", reason={"skipped_parts": [LOST]})],
    "a single first visit needs no heading": [told(policy="first-pass", why="first visit")],
}


def test_a_terminal_gets_a_table_of_the_same_words(kept: Kept) -> None:
    texts = {}
    for state, rounds in LOGS.items():
        console = Console(record=True, width=120, file=io.StringIO())
        console.print(*log_lines(rounds), table(log_rows(rounds), ROUND_COLUMNS), sep="\n", markup=False)
        texts[state] = "\n".join(line.rstrip() for line in console.export_text().splitlines())
    kept("decision-log-rounds", texts)
