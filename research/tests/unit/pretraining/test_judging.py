"""Models are judged on rows they did not see: by task, network, target and host; noise teaches nothing."""

from pathlib import Path

import numpy as np
import pytest

from mallorn.core.errors import InvalidRequest
from mallorn.costmodels.analytic_models import Draft
from mallorn.costmodels.lightgbm_models import LightGBM
from mallorn.costmodels.views import VIEWS
from mallorn_research.pretraining.evaluate_splits import SPLITS, average_scores, compute_test_scores, folds
from mallorn_research.pretraining.read_measurements import read_training_data
from mallorn_research.pretraining.training_data import Rows, TaskData, rows_for, rows_of, thin_tasks
from research.tests.unit.pretraining.made_up import SHAPES, task_data, training_data


def rows(*tasks: TaskData) -> Rows:
    return rows_for(tasks or training_data().tasks, "decisions")


def test_rows_are_compared_within_a_workload_on_a_target_in_a_context() -> None:
    first, other = task_data(SHAPES[0], 10), task_data(SHAPES[1], 10)
    found = rows(
        first, task_data(SHAPES[0], 5, target="gpu"), task_data(SHAPES[0], 5, context="there"), other
    )
    assert found.groups.tolist() == [0] * 10 + [1] * 5 + [2] * 5 + [3] * 10
    assert len(set(found.tasks[:20])) == 1, "a task is a workload, whatever it was measured on"
    assert [found.target_names[at] for at in found.targets[[0, 10, 15]]] == ["cpu", "gpu", "cpu"]
    assert all(found.labels[found.groups == group].max() == 0 for group in range(4))
    assert np.isinf(found.latencies_us[[us is None for us in first.latencies_us] + [False] * 20]).all()


@pytest.mark.parametrize("split", [name for name in SPLITS if name not in ("by-target", "by-host")])
def test_what_is_judged_was_not_learned_from(split: str) -> None:
    networks = training_data().networks
    found = rows()
    judged = list(folds(split, found, networks, seed=0))
    for fold in judged:
        train, test = fold.split
        assert not set(train) & set(test)
        if split == "by-task":
            assert not set(found.tasks[train]) & set(found.tasks[test])
        if split == "by-network":
            held_out = {found.workloads[task] for task in found.tasks[test]}
            assert held_out == set(networks[fold.name])
            assert not held_out & {found.workloads[task] for task in found.tasks[train]}
    if split == "by-network":
        assert [fold.name for fold in judged] == ["one", "two"]


def test_a_target_is_judged_by_what_the_others_taught() -> None:
    found = rows(task_data(SHAPES[0], target="cpu"), task_data(SHAPES[0], target="gpu"), task_data(SHAPES[1]))
    by_name = {fold.name: fold.split for fold in folds("by-target", found, {}, seed=0)}
    assert set(by_name) == {"cpu", "gpu"}
    assert {found.target_names[at] for at in found.targets[by_name["gpu"].test]} == {"gpu"}
    assert {found.target_names[at] for at in found.targets[by_name["gpu"].train]} == {"cpu"}


def test_a_host_is_judged_by_what_the_others_taught_of_its_targets_and_tasks_too() -> None:
    here, there = task_data(SHAPES[0], host="zen5"), task_data(SHAPES[0], context="there", host="zen4")
    found = rows(here, there, task_data(SHAPES[1], host="zen4"), task_data(SHAPES[2], host=""))
    by_name = {fold.name: fold.split for fold in folds("by-host", found, {}, seed=0)}
    assert set(by_name) == {"zen4", "zen5"}
    assert {found.host_names[at] for at in found.hosts[by_name["zen4"].train]} == {"zen5"}
    assert {found.host_names[at] for at in found.hosts[by_name["zen4"].test]} == {"zen4"}
    assert set(found.tasks[by_name["zen5"].test]) < set(found.tasks[by_name["zen5"].train])
    assert len(by_name["zen4"].train) + len(by_name["zen4"].test) == 180, "what is of no host is left out"


def test_a_model_learns_and_a_scrambled_one_orders_at_chance() -> None:
    found = rows_for(training_data(150).tasks, "decisions")
    taught = average_scores(compute_test_scores(LightGBM, found, "by-task", seeds=1))
    control = average_scores(compute_test_scores(LightGBM, found, "by-task", seeds=1, control=True))
    assert taught["pairwise"] > 0.7
    assert 0.4 < control["pairwise"] < 0.6


def test_networks_are_judged_as_a_whole_too() -> None:
    [found] = compute_test_scores(Draft, rows(), "by-network", 1, training_data().networks)
    assert 0 < found["network_1"] <= found["network_5"] <= 1
    [other] = compute_test_scores(Draft, rows(), "by-task", 1, training_data().networks)
    assert "network_1" not in other


def test_there_is_one_set_of_figures_a_seed() -> None:
    first, second = compute_test_scores(LightGBM, rows(), "by-task", seeds=2)
    assert first["pairwise"] != second["pairwise"], "folds are dealt by the seed"
    assert average_scores([first, second])["pairwise"] == pytest.approx(
        (first["pairwise"] + second["pairwise"]) / 2
    )


def test_a_figure_that_cannot_be_told_of_one_fold_is_the_mean_of_the_others() -> None:
    assert average_scores([{"pairwise": 0.5}, {"pairwise": float("nan")}])["pairwise"] == 0.5
    assert np.isnan(average_scores([{"pairwise": float("nan")}])["pairwise"])


@pytest.mark.parametrize("split", ["by-task", "by-network", "by-target", "by-host"])
def test_rows_that_a_split_cannot_part_are_refused(split: str) -> None:
    with pytest.raises(InvalidRequest, match="needs two") as caught:
        list(folds(split, rows(task_data(SHAPES[0])), {"only": {"256x256x256": 1}}, seed=0))
    assert "within-task" in caught.value.hint


def test_no_measurements_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="no measurements"):
        rows_of([], [])


def test_a_handful_of_rows_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="too few for this split"):
        compute_test_scores(Draft, rows(task_data(SHAPES[0], 1)), "within-task", seeds=1)


def test_a_thinned_set_keeps_the_best_of_every_task_and_some_of_all() -> None:
    tasks = [task_data(shape, 200) for shape in SHAPES]
    few = thin_tasks(tasks, 90)
    assert sum(len(task.candidates) for task in few) == 90
    assert [task.workload for task in few] == [task.workload for task in tasks]
    for before, after in zip(tasks, few, strict=True):
        known = [us for us in before.latencies_us if us]
        kept = [us for us in after.latencies_us if us]
        assert min(kept) == min(known)
        assert max(kept) > sorted(known)[len(known) // 2], "not only what is fast"
        places = [list(before.candidates).index(candidate) for candidate in after.candidates]
        assert places == sorted(places), "in their order"


def test_a_small_set_is_not_thinned() -> None:
    tasks = [task_data(SHAPES[0], 20)]
    assert thin_tasks(tasks, 20) == tasks


@pytest.mark.parametrize("view", ["statements", "code"])
def test_a_view_that_needs_a_compiler_is_refused_where_there_is_none(view: str) -> None:
    with pytest.raises(InvalidRequest, match="needs a compiler"):
        rows_for(training_data().tasks, view)


@pytest.mark.parametrize("view", ["decisions", "primitives", "loops"])
def test_recorded_candidates_are_seen_in_every_view_that_needs_none(view: str) -> None:
    recorded = read_training_data(Path("benchmarks/data/spaces.parquet")).tasks[:2]
    found = rows_for([task.take(range(5)) for task in recorded], view)
    assert found.features.shape == (10, VIEWS[view].width)
    assert np.isfinite(found.features).all()
    assert len(np.unique(found.features, axis=0)) > 2
