"""The best of thousands of candidates: what is kept of them, and the gaps that are told."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.cells import Cells
from benchmarks.oracle.arms import OURS, chance, first, together
from benchmarks.oracle.gaps import gaps_of, geometric, roofline_us
from benchmarks.oracle.report import guesses_by_target, report
from benchmarks.oracle.running import Cell, unfinished
from benchmarks.oracle.stream import Plan, read_trials
from benchmarks.oracle.tasks import read_tasks
from mallorn.core.outcomes import Outcome
from mallorn.core.targets import Target
from mallorn.core.values.candidate import Candidate
from mallorn.core.values.machine import assume_typical_cpu
from mallorn.core.values.trial import Trial
from mallorn.searchers.synthetic_space import SyntheticSpace
from mallorn.workers.interfaces.model_compiler import ModelTask
from mallorn.workers.interfaces.tensor_arguments import Arguments, Tensor

ARGS = Arguments((Tensor("TENSOR", "float32", (1000, 250)), Tensor("TENSOR", "float32", (250,))))
TASK = ModelTask("t", 1, "k" * 64, "matmul", "s", 1e6, "", ARGS, (8, 8))


def trial(at: int, arm: str, latency_us: float | None) -> Trial:
    outcome = Outcome.OK if latency_us else Outcome.BUILD_ERROR
    return Trial(Candidate("sketch", (at,)), outcome, latency_us, f"{arm}/random")


def cell(tmp_path: Path, trials: list[Trial], **figures: Any) -> Path:
    path = tmp_path / "cell.json"
    known = {"model": "m", "target": '{"kind":"llvm","mcpu":"haswell"}', "task": asdict(TASK)}
    machine = {"peak_gflops": 100.0, "memory_gbytes_per_sec": 10.0, "candidates": len(trials)}
    path.write_text(json.dumps(known | machine | figures))
    lines = (json.dumps(asdict(each)) for each in trials)
    path.with_suffix(".jsonl").write_text("\n".join(lines) + "\n")
    return path


def test_what_was_kept_is_read_again(tmp_path: Path) -> None:
    trials = [trial(0, "default", 5.0), trial(1, "ours", None)]
    assert list(read_trials(cell(tmp_path, trials).with_suffix(".jsonl"))) == trials


def test_of_a_stream_that_never_ran_there_is_nothing(tmp_path: Path) -> None:
    assert list(read_trials(tmp_path / "none.jsonl")) == []


def test_a_plan_ends_with_its_candidates_and_with_its_time() -> None:
    assert Plan(10, 1e12).left(9)
    assert not Plan(10, 1e12).left(10)
    assert not Plan(10, 0.0).left(0)


@pytest.mark.parametrize(
    ("candidates", "seconds", "left"), [(640, 10.0, False), (300, 60.0, False), (300, 59.0, True)]
)
def test_a_second_start_leaves_out_what_had_its_candidates_or_its_time(
    candidates: int, seconds: float, left: bool, tmp_path: Path
) -> None:
    target = Target('{"kind":"llvm","mcpu":"haswell","num-cores":1}')
    one = Cell("m", TASK, target, assume_typical_cpu(cores=1, lanes=8), tmp_path, candidates=640, seed=0)
    assert unfinished([one], 60.0) == [one]
    Cells(tmp_path).keep(one.name, {"candidates": candidates, "seconds": seconds})
    assert unfinished([one], 60.0) == [one] * left


def test_gaps_are_told_by_the_contest_in_which_all_met(tmp_path: Path) -> None:
    trials = [trial(0, "default", 40.0), *(trial(at, "ours", 40.0 - at / 10) for at in range(1, 101))]
    trials += [trial(200, "chance", 35.0), trial(300, "together", 20.0)]
    best = {"default": 44.0, "ours": 33.0, "chance": 36.0, "together": 22.0}
    gaps = gaps_of(cell(tmp_path, trials, first_us=50.0, best_us=best))
    assert (gaps.first_us, gaps.defaults_us, gaps.oracle_us) == (50.0, 44.0, 22.0)
    assert (gaps.figures[0], gaps.figures[2]) == (50.0 / 22.0, 2.0)
    assert gaps.ours_us[256] == 33.0
    # After 64 trials ours had 33.7 where it ended with 30.0; what it ended with took 33.0 in the contest.
    assert gaps.ours_us[64] == pytest.approx(33.0 * 33.7 / 30.0)
    assert gaps.chance_us == {64: 36.0, 256: 36.0}


def test_of_three_guesses_the_best_counts_on_the_scale_of_the_contest(tmp_path: Path) -> None:
    trials = [trial(at, "default", us) for at, us in enumerate((40.0, None, 36.0, 42.0, 20.0))]
    best = {"default": 30.0, "ours": None, "chance": None, "together": 25.0}
    assert gaps_of(cell(tmp_path, trials, first_us=50.0, best_us=best)).guesses_us == pytest.approx(45.0)
    best["default"] = 48.0
    assert gaps_of(cell(tmp_path, trials, first_us=50.0, best_us=best)).guesses_us == 48.0


def test_guesses_are_told_by_target_with_the_worst_and_those_far_off(tmp_path: Path) -> None:
    best = {"default": 30.0, "ours": None, "chance": None, "together": 20.0}
    trials = [trial(at, "default", us) for at, us in enumerate((40.0, 24.0))]
    near = gaps_of(cell(tmp_path, trials, first_us=20.0, best_us=best | {"default": 20.0}))
    far = gaps_of(cell(tmp_path, trials, first_us=40.0, best_us=best))
    assert guesses_by_target([near, far])["haswell"]["first guess"] == {
        "mean": pytest.approx(2**0.5),
        "worst": 2.0,
        "worst task": "m, matmul",
        "beyond 1.25": 1,
        "tasks": 2,
    }


def test_all_tables_are_printed_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    best = {"default": 44.0, "ours": None, "chance": None, "together": 22.0}
    trials = [trial(0, "default", 40.0), trial(1, "together", 20.0)]
    cell(tmp_path, trials, first_us=44.0, best_us=best)
    report(tmp_path, out := tmp_path / "oracle.txt")
    printed = capsys.readouterr().out
    assert "| m | matmul | haswell | 2 | 2.000 | 2.000 | 2.000 |" in printed
    assert "| haswell | 1 | 2.000 | 2.000 | 2.000 |" in printed
    assert "| haswell | best of three | 2.000 | 2.000 | m, matmul | 1 | 1 |" in printed
    assert json.loads(out.read_text())["headline"] == pytest.approx(2.0)


def test_what_was_measured_earlier_keeps_its_host(tmp_path: Path) -> None:
    best = {"default": 44.0, "ours": None, "chance": None, "together": 22.0}
    cell(tmp_path, [trial(0, "default", 40.0)], first_us=44.0, best_us=best)
    out = tmp_path / "oracle.txt"
    out.write_text(json.dumps({"commit": "of that time", "headline": 1.0}))
    report(tmp_path, out, measured=False)
    assert json.loads(out.read_text())["commit"] == "of that time"


def test_an_arm_that_found_nothing_better_has_its_defaults(tmp_path: Path) -> None:
    best = {"default": 44.0, "ours": None, "chance": None, "together": None}
    gaps = gaps_of(cell(tmp_path, [trial(0, "default", 40.0)], first_us=44.0, best_us=best))
    assert gaps.ours_us == gaps.chance_us == {64: 44.0, 256: 44.0}


def test_the_limit_is_computing_or_moving_whichever_is_longer() -> None:
    known = {"task": asdict(TASK), "memory_gbytes_per_sec": 10.0}
    moved = 4 * (1000 * 250 + 250) / 10.0 / 1e3
    assert roofline_us(known | {"peak_gflops": 1e6}) == pytest.approx(moved)
    assert roofline_us(known | {"peak_gflops": 1.0}) == pytest.approx(1000.0)


def test_the_mean_is_geometric_and_of_nothing_no_number() -> None:
    assert geometric([1.0, 4.0]) == pytest.approx(2.0)
    assert np.isnan(geometric([]))


def test_tasks_survive_their_file(tmp_path: Path) -> None:
    path = tmp_path / "tasks.json"
    path.write_text(json.dumps([{"model": "m", "task": asdict(TASK)}]))
    assert read_tasks(path) == [("m", TASK)]


def test_no_arm_proposes_what_was_measured() -> None:
    space, arms = SyntheticSpace(), together()
    history = [Trial(each.candidate, Outcome.OK, 10.0 + at) for at, each in enumerate(first(space))]
    for seed in range(3):
        batches = (
            OURS.propose(space, history, 8, seed),
            chance(space, history, 8, seed),
            next(arms).propose(space, history, 8, seed),
        )
        for batch in batches:
            found = {proposal.candidate for proposal in batch}
            assert len(found) == 8
            assert not found & {known.candidate for known in history}
