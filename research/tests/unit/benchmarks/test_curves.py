"""Recorded curves: kept cell by cell in a file, and answered to rounds of any size in the recorded order."""

from dataclasses import replace
from pathlib import Path

from benchmarks.sim.curve_file import Cell, CurveFile
from benchmarks.sim.curves import TaskCurve, recordings
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


CURVE = TaskCurve("dense", 2, 1e6, "matmul", "s0", (9.0, None, 7.0, 8.0), (1.0, 2.0, 3.0, 4.0))


def test_a_round_of_any_size_is_a_cut_of_the_sequence_with_its_seconds() -> None:
    assert CURVE.cut(0, 1).candidates_us == (9.0,)
    cut = CURVE.cut(1, 3)
    assert cut.candidates_us == (None, 7.0, 8.0)
    assert (cut.seconds, cut.best_us, cut.dry) == (9.0, 7.0, False)


def test_two_small_rounds_bring_what_one_large_one_does() -> None:
    whole = CURVE.cut(0, 4)
    halves = CURVE.cut(0, 2), CURVE.cut(2, 2)
    assert whole.candidates_us == halves[0].candidates_us + halves[1].candidates_us
    assert whole.seconds == sum(cut.seconds for cut in halves)


def test_past_its_end_a_curve_repeats_its_tail_and_never_gains() -> None:
    cut = CURVE.cut(3, 6)
    assert cut.candidates_us == (8.0, 9.0, None, 7.0, 8.0, 9.0)
    assert cut.best_us == CURVE.final_us
    long = replace(CURVE, candidates_us=(1.0, *[5.0] * 16), seconds=(1.0,) * 17)
    assert long.cut(17, 16).best_us == 5.0


def test_a_task_that_ran_dry_while_recorded_runs_dry_in_replay() -> None:
    dry = replace(CURVE, runs_dry=True)
    assert not dry.cut(0, 4).dry
    assert (dry.cut(2, 4).candidates_us, dry.cut(2, 4).dry) == ((7.0, 8.0), True)
    assert (dry.cut(4, 4).candidates_us, dry.cut(4, 4).seconds) == ((), 0.0)


def test_a_round_without_a_valid_candidate_has_no_best() -> None:
    assert CURVE.cut(1, 1).best_us is None


def test_rounds_of_a_recording_join_to_one_curve_a_task() -> None:
    later = replace(ROUND, index=9, round=1, size=16, candidates_us=(6.0, 5.0), seconds=3.0)
    other = replace(ROUND, task=0, name="pool", weight=1, candidates_us=(None,), size=1)
    again = replace(ROUND, seed=1)
    found = recordings([later, ROUND, other, again])
    assert [len(model.tasks) for model in found["mlp"]] == [2, 1]
    pool, dense = found["mlp"][0].tasks
    assert (pool.name, pool.final_us, pool.runs_dry) == ("pool", None, False)
    assert dense.candidates_us == (8.0, None, 7.5, 6.0, 5.0)
    assert dense.seconds == (1.25 / 3, 1.25 / 3, 1.25 / 3, 1.5, 1.5)
    assert dense.runs_dry
    assert found["mlp"][0].trials == 6
    assert found["mlp"][0].final_us == 10.0  # 2 x 5; what never worked counts nothing
