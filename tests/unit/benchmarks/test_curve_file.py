"""The file of recorded curves keeps what was written, cell by cell."""

from dataclasses import replace
from pathlib import Path

from benchmarks.sim.curve_file import Cell, CurveFile
from tests.unit.benchmarks.made_up import ROUND


def test_a_file_that_is_not_there_yet_is_empty(tmp_path: Path) -> None:
    file = CurveFile(tmp_path / "none.parquet")
    assert file.rounds() == []
    assert file.facts() == {}


def test_rounds_come_back_as_they_were_with_failures_and_facts(tmp_path: Path) -> None:
    barren = replace(ROUND, index=4, best_us=None, candidates_us=(None, None))
    CurveFile(tmp_path / "new" / "c.parquet").add(Cell("mlp", 0), [ROUND, barren], {"rounds": 2})
    again = CurveFile(tmp_path / "new" / "c.parquet")
    assert again.rounds() == [ROUND, barren]
    assert again.facts() == {"mlp/0": {"rounds": 2}}


def test_a_cell_recorded_again_takes_the_place_of_the_old_one_and_leaves_the_others(tmp_path: Path) -> None:
    file = CurveFile(tmp_path / "c.parquet")
    other = replace(ROUND, seed=1)
    file.add(Cell("mlp", 0), [ROUND, replace(ROUND, index=4)], {"rounds": 2})
    file.add(Cell("mlp", 1), [other], {"rounds": 1})
    newer = replace(ROUND, best_us=5.0)
    file.add(Cell("mlp", 0), [newer], {"rounds": 9})
    assert file.rounds() == [newer, other]
    assert file.facts() == {"mlp/0": {"rounds": 9}, "mlp/1": {"rounds": 1}}


def test_a_cell_lies_together_in_the_order_its_rounds_were_planned(tmp_path: Path) -> None:
    file = CurveFile(tmp_path / "c.parquet")
    file.add(Cell("mlp", 0), [replace(ROUND, index=2), replace(ROUND, index=0)], {})
    file.add(Cell("cnn", 0), [replace(ROUND, model="cnn", index=1)], {})
    assert [(row.model, row.index) for row in file.rounds()] == [("cnn", 1), ("mlp", 0), ("mlp", 2)]
