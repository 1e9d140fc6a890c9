"""The figures of each task and the table of cost models, beside cases worked out by hand."""

import math

import pytest

from benchmarks.costmodels.arms import METASCHEDULE
from benchmarks.costmodels.cells import Cell, Finished
from benchmarks.costmodels.report import FIGURES, headline, lines, summarise
from benchmarks.costmodels.task_figures import judge_tasks
from research.tests.unit.costmodels.test_evaluation import GROUPS, SCORES, TRUTH


def test_every_task_has_its_own_figures() -> None:
    found = judge_tasks(SCORES, TRUTH, GROUPS)
    assert list(found) == [7, 9]
    first, second = found[7], found[9]
    assert (first.pairwise, first.top_recall, first.peak_1, first.rows) == (1.0, 1.0, 1.0, 3)
    assert (second.pairwise, second.top_recall, second.rows) == (0.0, 0.0, 2)
    assert second.peak_1 == pytest.approx(0.25)
    assert second.peak_5 == pytest.approx((0.25 + 4 * 1) / 5)
    assert (first.spearman, second.spearman) == (pytest.approx(1.0), pytest.approx(-1.0))
    assert math.isnan(first.top_pairwise), "a tenth of three rows is one, which has no order"


def test_errors_are_told_in_log_units_and_as_shares_of_the_best_speed() -> None:
    first, second = judge_tasks(SCORES, TRUTH, GROUPS).values()
    assert first.rmse == pytest.approx(math.log(2) / math.sqrt(3), rel=1e-3)
    assert first.speed_rmse == pytest.approx(0.25 / math.sqrt(3), rel=1e-3)
    assert second.rmse == pytest.approx(math.sqrt((math.log(8) ** 2 + math.log(4) ** 2) / 2))
    assert second.speed_rmse == pytest.approx(math.sqrt((0.875**2 + 0.75**2) / 2))


def finished(
    arm: str, seed: int, tasks: dict[str, float | None], split: str = "by-task", fold: str = "fold 0"
) -> Finished:
    told = {task: dict.fromkeys(FIGURES, value) for task, value in tasks.items()}
    return Finished(Cell("rows", arm, split, fold, seed), 10, 5, 2.0, 0.01, 0.8, told)


RUNS = [
    finished("xgboost", 0, {"a": 0.9, "b": 0.7}),
    finished("xgboost", 1, {"a": 0.8}, fold="fold 0"),
    finished("xgboost", 1, {"b": 0.6, "c": None}, fold="fold 1"),
    finished(METASCHEDULE, 0, {"a": 0.7, "b": 0.8}),
    finished(METASCHEDULE, 1, {"a": 0.7}, fold="fold 0"),
    finished(METASCHEDULE, 1, {"b": 0.8, "c": 0.1}, fold="fold 1"),
]


def test_a_figure_is_the_mean_over_tasks_and_its_spread_that_of_seeds() -> None:
    told = summarise(RUNS)["by-task"]["xgboost"]
    assert told["figures"]["pairwise"]["seeds"] == [pytest.approx(0.8), pytest.approx(0.7)]
    assert told["figures"]["pairwise"]["mean"] == pytest.approx(0.75)
    assert told["figures"]["pairwise"]["spread"] == pytest.approx(0.05)
    assert (told["tasks"], told["runs"]) == (3, 3)
    assert (told["fit_sec"], told["interval_80"]) == (2.0, pytest.approx(0.8))
    assert told["score_ms_a_thousand"] == pytest.approx(2000.0)


def test_the_bar_is_compared_with_task_by_task() -> None:
    beside = summarise(RUNS)["by-task"]["xgboost"]["beside_metaschedule"]
    # a: +0.2 and +0.1; b: -0.1 and -0.2; c cannot be told of one of them
    assert beside["pairwise"]["difference"] == pytest.approx(0.0)
    assert beside["pairwise"]["standard_error"] == pytest.approx(math.sqrt(0.045) / math.sqrt(2))
    assert (beside["pairwise"]["better"], beside["pairwise"]["worse"]) == (1, 1)


def test_an_error_is_better_the_smaller_it_is() -> None:
    runs = [
        finished("mlp", 0, {"a": 0.1, "b": 0.1, "c": 0.3}),
        finished(METASCHEDULE, 0, dict.fromkeys("abc", 0.2)),
    ]
    beside = summarise(runs)["by-task"]["mlp"]["beside_metaschedule"]
    assert (beside["rmse"]["better"], beside["rmse"]["worse"]) == (2, 1)
    assert (beside["pairwise"]["better"], beside["pairwise"]["worse"]) == (1, 2)


def test_the_table_has_a_line_a_model_and_the_papers_only_within_task() -> None:
    told = list(lines(summarise([*RUNS, finished("mlp", 0, {"a": None}, "within-task")])))
    (line,) = [line for line in told if line.startswith("| `xgboost` | 0")]
    assert line.count("0.750 ± 0.050") == len(FIGURES)
    (gap,) = [line for line in told if line.startswith("| `xgboost` | +")]
    assert gap.count("+0.000 ± 0.150 (1:1)") == len(FIGURES)
    assert sum("Pruner PAM" in line for line in told) == 1
    assert not any("±" in line for line in lines(summarise(RUNS[:1]))), "one seed has no spread"
    widths = [line.count("|") for line in told if line.startswith("|")]
    assert len(set(widths)) == 2, "tables of figures, and of differences"


def test_the_headline_is_about_tasks_never_seen() -> None:
    assert headline(summarise(RUNS)).endswith("xgboost 0.750, MetaSchedule's model 0.642")
    assert headline(summarise(RUNS[:3])).endswith("xgboost 0.750")
    assert headline({}) == "no model of ours was judged by task"
