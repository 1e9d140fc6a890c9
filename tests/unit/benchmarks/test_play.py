"""The simulator on curves small enough to be played by hand."""

import pytest

from benchmarks.sim.curves import ModelCurves
from benchmarks.sim.play import Run, Stalled, play
from benchmarks.sim.state import new_job
from mallorn.core.registry import REGISTRY
from tests.unit.benchmarks.made_up import TWO_TASKS, task


@pytest.fixture(autouse=True)
def _favourite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REGISTRY["policy"], "favourite", "tests.unit.benchmarks.made_up:Favourite")


def run(policy: str, devices: int = 1, max_open_rounds: int = 1, model: ModelCurves = TWO_TASKS) -> Run:
    job = new_job(model, policy, 0, max_open_rounds=max_open_rounds, round_size=4)
    return play(job, devices, model.final_us)


def test_round_robin_goes_to_and_fro() -> None:
    steps = run("round-robin").steps
    # Start at 100 + 3 x 10; the third and fifth rounds are steep's gains, the last is level's.
    assert [step.latency_us for step in steps] == [130.0, 130.0, 80.0, 80.0, 55.0, 52.0]
    assert [step.trials for step in steps] == [4, 8, 12, 16, 20, 24]
    assert [step.seconds for step in steps] == [4.0, 12.0, 16.0, 24.0, 28.0, 36.0]


def test_the_better_order_gets_there_sooner() -> None:
    best, turns = run("favourite"), run("round-robin")
    assert [step.latency_us for step in best.steps] == [130.0, 130.0, 80.0, 55.0, 55.0, 52.0]
    assert (best.trials_to(1.06), turns.trials_to(1.06)) == (16, 20)  # 55 is 1.058 x 52
    assert (best.seconds_to(1.06), turns.seconds_to(1.06)) == (20.0, 28.0)
    assert best.trials_to(1.05) == turns.trials_to(1.05) == 24


def test_regret_is_what_is_left_to_win_after_a_share_of_the_trials() -> None:
    found = run("favourite")
    assert found.regret(0.0) == found.regret(0.49) == pytest.approx(130 / 52 - 1)
    assert found.regret(0.5) == pytest.approx(80 / 52 - 1)
    assert found.regret(1.0) == 0.0


def test_two_devices_work_side_by_side_and_a_task_has_one_round_at_once() -> None:
    steps = run("round-robin", devices=2, max_open_rounds=2).steps
    # steep's rounds end at 4, 8, 12 and 16, level's at 8 and 16: the free device takes what is not blocked.
    assert [step.seconds for step in steps] == [4.0, 8.0, 8.0, 12.0, 16.0, 16.0]
    assert [step.latency_us for step in steps] == [130.0, 130.0, 80.0, 55.0, 55.0, 55.0]


def test_a_round_planned_ahead_waits_for_its_device() -> None:
    ahead = run("round-robin", devices=1, max_open_rounds=2)
    assert [step.seconds for step in ahead.steps] == [4.0, 12.0, 16.0, 24.0, 28.0, 36.0]


def test_a_run_that_ends_before_is_charged_with_all_it_left_unseen() -> None:
    job = new_job(TWO_TASKS, "favourite", 0, max_open_rounds=1, round_size=4)
    job.budget = 16  # ends at 55 with two rounds of level unseen
    found = play(job, 1, TWO_TASKS.final_us)
    assert not found.reached(1.05)
    assert (found.trials_to(1.05), found.seconds_to(1.05)) == (24, 36.0)
    assert found.reached(1.06)


def test_tasks_that_run_dry_or_never_work_end_the_job_early() -> None:
    dry = task("dry", 1, (20.0, 10.0), 1.0, runs_dry=True)
    broken = task("broken", 1, (None, None, None, None), 1.0)
    model = ModelCurves("ends", (dry, broken))
    job = new_job(model, "round-robin", 0, max_open_rounds=1, round_size=4)
    job.budget = 1000
    found = play(job, 1, model.final_us)
    assert found.steps[-1].latency_us == found.final_us == 10.0
    assert found.steps[-1].trials == 8 + 12  # dry's all, and three rounds before broken is given up
    assert found.finished


def test_a_planner_that_neither_plans_nor_ends_is_an_error() -> None:
    job = new_job(TWO_TASKS, "round-robin", 0, max_open_rounds=0)
    with pytest.raises(Stalled, match="two"):
        play(job, 1, TWO_TASKS.final_us)


def test_equal_seeds_give_equal_runs() -> None:
    first, second = run("gradient"), run("gradient")
    assert first.steps == second.steps
