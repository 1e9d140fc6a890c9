"""Rounds replayed on recordings: what a batch may hold, how its order is judged, what it comes to."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from benchmarks.costmodels.rows import Bench
from benchmarks.fresh_batches import Cell, Finished, families, figures, headline, lines, parse, run, summarise
from benchmarks.lab.cell_file import CellFile
from benchmarks.lab.rounds import Batch, Family, Pool, best_after, by_task, play
from mallorn.costmodels.base import CostModel, Groups, Matrix, Prediction, Vector
from mallorn.costmodels.random import RandomModel
from mallorn.research.pretraining.training_data import TaskData, TrainingData
from mallorn.searchers.pooled_searcher import TopK
from mallorn.searchers.space import Candidate
from tests.unit.research.replay.made_up import made_up

ROWS = 40


class Knowing(RandomModel):
    """Reads the label, which the made-up rows hold in their first column."""

    def predict(self, features: Matrix) -> Prediction:
        return Prediction(features[:, 0], np.zeros(len(features), dtype=np.float32))


class Counting(Knowing):
    """Says how many rows it learned from."""

    learned: ClassVar[list[int]] = []

    def fit(self, features: Matrix, labels: Vector, groups: Groups, *, seed: int) -> None:
        del features, labels, seed
        self.learned.append(len(groups))


def family(opened: Sequence[int] = ()) -> Family:
    """Two tasks of ROWS candidates each; the last candidate is the best."""
    labels = np.tile(np.linspace(-1.0, 0.0, ROWS, dtype=np.float32), 2)
    places = np.arange(2 * ROWS).reshape(2, ROWS)
    return Family(
        [Candidate("sketch", (int(at),)) for at in range(2 * ROWS)],
        labels[:, None],
        labels[:, None],
        labels,
        np.repeat([0, 1], ROWS),
        [Pool(own, own[list(opened)]) for own in places],
    )


def played(
    make: type[CostModel] | None, opened: Sequence[int] = (), rounds: int = 3
) -> dict[int, list[Batch]]:
    chosen = play(family(opened), make, TopK(0.0), rounds=rounds, batch=8, seed=0)
    return {number: list(batches) for number, batches in by_task(chosen).items()}


def test_a_model_that_knows_the_times_finds_the_best_in_its_first_batch_and_orders_all_pairs() -> None:
    for batches in played(Knowing).values():
        assert [batch.pairs for batch in batches[1:]] == [1.0, 1.0]
        assert batches[1].best == pytest.approx(1.0)
        assert best_after(batches, 16) == pytest.approx(1.0)


def test_a_search_opens_with_its_defaults_and_expects_nothing_of_them() -> None:
    opening = played(Knowing, opened=range(8))[0][0]
    assert np.isnan(opening.pairs)
    assert opening.best == pytest.approx(float(np.exp(1.0 - 7 / (ROWS - 1))))


def test_all_models_open_alike() -> None:
    assert played(None)[1][0].best == played(Knowing)[1][0].best


def test_a_model_learns_from_the_batches_of_all_tasks_before_its_own() -> None:
    Counting.learned.clear()
    played(Counting, rounds=4)
    assert Counting.learned == [16, 32, 48]


def test_a_batch_is_never_measured_twice_and_a_recording_ends() -> None:
    batches = played(None, rounds=9)[0]
    assert [batch.trials for batch in batches] == [0, 8, 16, 24, 32]
    assert min(batch.best for batch in batches) == pytest.approx(1.0)
    assert [batch.left for batch in batches] == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2])


def test_pairs_are_judged_while_most_of_a_recording_is_left() -> None:
    told = figures([Batch(0, 1.0, float("nan"), float("nan"), 2.0), *_orders(0.9, 0.5, left=0.8)], 8)
    assert told["pairs"] == pytest.approx(0.7)
    late = figures([*_orders(0.9, left=0.8), *_orders(0.1, left=0.7)], 8)
    assert late["pairs"] == pytest.approx(0.9)


def test_trials_to_the_best_are_those_measured_when_it_was_known() -> None:
    batches = [Batch(8 * at, 1.0, 0.5, 0.5, best) for at, best in enumerate((1.5, 1.01, 1.0))]
    assert figures(batches, 8)["trials to 1.02"] == 16
    assert figures(batches[:1], 8)["trials to 1.02"] == 8


def test_arms_are_told_beside_the_first_on_the_same_tasks() -> None:
    report = summarise([_finished("one", "t", 0.5), _finished("two", "t", 0.6)], ["one", "two"])
    assert report["two"]["pairs"]["difference"] == pytest.approx(0.1)
    assert headline(report) == "pairs of fresh batches in order: two 0.600, one 0.500"
    assert any("0.600 (+10.0 ± 0.0)" in line for line in lines(report))


def test_without_a_model_nothing_was_ordered() -> None:
    assert headline({"none": {}}) == "no model ordered a fresh batch"


def test_tasks_of_an_operator_on_a_target_are_a_family(bench: Bench) -> None:
    assert sorted(at for tasks in families(bench).values() for at in tasks) == [0, 1]


def test_a_cell_is_played_on_recorded_rows_and_read_back(bench: Bench, tmp_path: Path) -> None:
    cell = Cell(bench.fingerprint, "forest/topk", next(iter(families(bench))), rounds=2, batch=8, seed=0)
    done = run(bench, cell)
    file = tmp_path / "cells.jsonl"
    CellFile(file, parse).add(done)
    (again,) = CellFile(file, parse).of([cell])
    assert [len(batches) for batches in again.tasks.values()] == [2, 2]
    np.testing.assert_equal(asdict(again), asdict(done))


@pytest.fixture
def bench() -> Bench:
    tasks = [
        TaskData(
            task.workload,
            task.op,
            task.target,
            "here",
            task.descriptors,
            {each.key: each for each in task.sketches},
            task.trials,
        )
        for task in (made_up(seed=1), made_up(seed=2))
    ]
    return Bench(TrainingData(tasks, "made up"))


def _orders(*pairs: float, left: float) -> list[Batch]:
    return [Batch(8, left, share, share, 1.0) for share in pairs]


def _finished(arm: str, task: str, pairs: float) -> Finished:
    return Finished(Cell("rows", arm, "family", 2, 8, 0), {task: _orders(pairs, left=0.9)})
