"""A curve answers rounds of any size, in the recorded order."""

from dataclasses import replace

from benchmarks.sim.curves import TaskCurve, recordings
from tests.unit.benchmarks.made_up import ROUND

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
