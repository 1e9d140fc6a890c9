"""Runs of the comparison are made once, on the same rows for every model, and tell a model from chance."""

from pathlib import Path

import pytest

from benchmarks.costmodels.arms import CONTROL, arm
from benchmarks.costmodels.cells import Cell, Finished, cells, parse, run, run_all
from benchmarks.costmodels.report import headline, lines, summarise
from benchmarks.costmodels.rows import Bench
from benchmarks.costmodels.synthetic import made_up
from benchmarks.lab.cell_file import CellFile
from mallorn.core.errors import InvalidRequest
from research.tests.unit.pretraining.made_up import training_data

NAMES = ("draft", "lightgbm", CONTROL)


@pytest.fixture(scope="module")
def bench() -> Bench:
    return Bench(training_data(100))


def all_of(bench: Bench, seeds: int = 1) -> list[Cell]:
    return list(cells(bench, [arm(name) for name in NAMES], seeds))


def test_a_cell_is_a_model_on_a_fold_with_a_seed(bench: Bench) -> None:
    wanted = all_of(bench, 2)
    folds = 1 + 4 + 2  # late rows; four tasks, each alone; two networks
    assert len(wanted) == len(set(wanted)) == 2 * folds * len(NAMES)
    assert {cell.fold for cell in wanted if cell.split == "by-network"} == {"one", "two"}
    assert {cell.seed for cell in wanted[: len(wanted) // 2]} == {0}, "seed by seed"


def test_every_model_is_judged_on_the_same_rows(bench: Bench) -> None:
    for split in bench.splits():
        found = [run(bench, cell) for cell in all_of(bench) if cell.split == split]
        by_fold = {(each.cell.fold, each.judged, each.learned, *each.tasks) for each in found}
        assert len(by_fold) == len({each.cell.fold for each in found})


def test_a_second_start_makes_only_what_is_missing(bench: Bench, tmp_path: Path) -> None:
    path, wanted = tmp_path / "deep" / "cells.jsonl", all_of(bench)
    first = CellFile(path, parse)
    for cell in wanted[:3]:
        first.add(run(bench, cell))
    again = CellFile(path, parse)
    assert [cell in again for cell in wanted[:4]] == [True, True, True, False]
    assert again.of(wanted) == first.of(wanted[:3])


def test_a_line_that_was_cut_short_is_made_again(bench: Bench, tmp_path: Path) -> None:
    path, wanted = tmp_path / "cells.jsonl", all_of(bench)[:2]
    for cell in wanted:
        CellFile(path, parse).add(run(bench, cell))
    path.write_bytes(path.read_bytes()[:-20])
    known = CellFile(path, parse)
    assert [cell in known for cell in wanted] == [True, False]
    known.add(run(bench, wanted[1]))
    assert len(CellFile(path, parse).of(wanted)) == 2


def test_lines_that_are_no_cells_are_refused_by_number(tmp_path: Path) -> None:
    path = tmp_path / "cells.jsonl"
    path.write_text('{"cell": {}}\n')
    with pytest.raises(InvalidRequest, match=r"line 1 of .* is no cell") as caught:
        CellFile(path, parse)
    assert caught.value.hint


def test_cells_of_other_rows_are_not_taken_for_these() -> None:
    few, more = (all_of(Bench(made_up(rows)))[0] for rows in (20, 21))
    assert few != more


def test_models_learn_tasks_never_seen_and_scrambled_labels_teach_nothing() -> None:
    bench = Bench(made_up(60))
    wanted = [cell for cell in all_of(bench) if cell.split == "by-task"]
    report = summarise(run_all(bench, "synthetic", 1, wanted, jobs=1))
    unseen = {name: told["figures"]["pairwise"]["mean"] for name, told in report["by-task"].items()}
    assert unseen["lightgbm"] > unseen["draft"] > 0.6 > unseen[CONTROL] > 0.4
    assert "lightgbm" in headline(report)
    assert any(line.startswith("| `draft` |") for line in lines(report))


def test_several_processes_come_to_the_same() -> None:
    bench = Bench(made_up())
    wanted = [Cell(bench.fingerprint, "draft", "by-task", f"fold {number}", 0) for number in range(2)]

    def figures(found: list[Finished]) -> list[object]:
        return sorted((each.cell.fold, str(each.tasks)) for each in found)

    alone, together = (list(run_all(bench, "synthetic", 1, wanted, jobs)) for jobs in (1, 2))
    assert figures(alone) == figures(together)
