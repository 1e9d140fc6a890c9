"""The ablation compares whole models by ratios to what the same sitting timed beside them."""

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import ablation
from benchmarks.ablation import _is_done, _missing_references, _select_cells, main
from benchmarks.ablation_arms import CHANCE_OPTIONS, INSTEAD, WITHOUT, all_arms
from benchmarks.ablation_report import lines, report
from benchmarks.cells import Cells
from benchmarks.lab.unlearned import TWINS
from mallorn.core.check_option_kwargs import check_option_kwargs
from mallorn.core.job_options import JobOptions
from mallorn.core.registry import REGISTRY


def cell(
    arm: str, points: dict[int, float], end_us: float, *, model: str = "m", seed: int = 0, threads: int = 2
) -> dict[str, Any]:
    """No trials: 100 us; chance: 80 us in the end; a budget of 16 trials, half a second each."""
    times = {"zero": 100.0, "chance": 80.0, "onnxruntime": 90.0}
    times |= {f"{arm}@{trials}": us for trials, us in points.items()} | {arm: end_us}
    return {
        "model": model,
        "target": {"kind": "llvm", "mcpu": "znver4", "num-cores": threads},
        "arm": arm,
        "seed": seed,
        "trials": 16,
        "tuning_sec": 8.0,
        "total_sec": 10.0,
        "latency_us": {name: {"median": us} for name, us in times.items()},
    }


def reported(*cells: dict[str, Any]) -> dict[str, Any]:
    return report({str(at): cell for at, cell in enumerate(cells)})


def arguments(tmp_path: Path, *arms: str, seeds: int = 2) -> Namespace:
    haswell = '{"kind": "llvm", "mcpu": "haswell", "num-cores": 2}'
    models = [Path("a.onnx"), Path("b.onnx")]
    return Namespace(
        models=models, targets=[haswell], threads=None, arms=list(arms), seeds=seeds, schedules=tmp_path
    )


def test_every_arm_asks_for_what_a_job_can_be_asked_for() -> None:
    for arm in all_arms().values():
        check_option_kwargs(dict(arm.options))  # type: ignore[arg-type]


def test_each_part_that_is_left_out_differs_from_the_defaults_in_one_choice() -> None:
    standard = JobOptions().model_dump()
    for options in (WITHOUT | INSTEAD).values():
        assert [standard[name] != value for name, value in options.items()] == [True]
    assert CHANCE_OPTIONS["search"] == "random"


def test_every_searcher_and_every_twin_has_an_arm() -> None:
    named = {arm.options.get("search", JobOptions().search) for arm in all_arms().values()}
    assert named == set(REGISTRY["search"]) | set(TWINS.values())


def test_what_others_are_timed_beside_comes_first_and_once(tmp_path: Path) -> None:
    names = [cell.name for cell in _select_cells(arguments(tmp_path, "ours", "search-ga"))]
    assert names[:4] == [
        "a-haswell-2-zero-0",
        "a-haswell-2-chance-0",
        "a-haswell-2-ours-0",
        "a-haswell-2-search-ga-0",
    ]
    assert names[8:11] == ["a-haswell-2-chance-1", "a-haswell-2-search-ga-1", "a-haswell-2-ours-1"]
    assert len(names) == len(set(names)) == 14


def test_a_cell_without_the_schedules_that_others_need_is_made_again(tmp_path: Path) -> None:
    args, cells = arguments(tmp_path / "schedules", "ours", seeds=1), Cells(tmp_path / "raw")
    zero, chance, ours = list(_select_cells(args))[:3]
    for each in (zero, chance, ours):
        cells.keep(each.name, {})
    (tmp_path / "schedules" / zero.name).mkdir(parents=True)
    assert [_is_done(args, cells, each) for each in (zero, chance, ours)] == [True, False, True]


def test_the_headline_is_ours_over_chance_in_the_same_sitting() -> None:
    found = reported(cell("ours", {16: 70.0}, 60.0), cell("ours", {16: 90.0}, 96.0, model="n"))
    assert found["headline"] == pytest.approx((0.75 * 1.2) ** 0.5)
    assert found["behind_chance"] == ["n znver4 x2"]
    assert lines(found)[-1].endswith(": 0.949")


def test_trials_count_up_to_the_first_checkpoint_as_fast_as_chances_end() -> None:
    early = cell("ours", {4: 85.0, 8: 79.0, 16: 70.0}, 70.0)
    never = cell("ours", {4: 95.0, 8: 90.0, 16: 85.0}, 85.0, seed=1)
    (first, second) = reported(early, never)["runs"]
    assert (first["chance_trials_share"], second["chance_trials_share"]) == (0.5, 2.0)


def test_what_a_job_hands_out_may_reach_it_where_its_last_checkpoint_did_not() -> None:
    (run,) = reported(cell("ours", {8: 90.0, 16: 81.0}, 79.0))["runs"]
    assert run["chance_trials_share"] == 1.0


def test_a_part_is_worth_what_the_end_without_it_is_slower() -> None:
    cells = [cell("ours", {16: 60.0}, 60.0), cell("without-model", {16: 66.0}, 66.0)]
    assert reported(*cells, cell("without-model", {16: 1.0}, 1.0, seed=1))["parts"] == {
        "without-model": pytest.approx(1.1)
    }


def test_a_part_is_told_with_its_noise_and_with_how_often_it_helped() -> None:
    ends = {"ours": (60.0, 60.0), "without-model": (66.0, 54.0)}
    cells = [cell(arm, {}, us, seed=seed) for arm, both in ends.items() for seed, us in enumerate(both)]
    noise = reported(*cells)["noise"]["without-model"]
    assert noise == "+- 0.100; ours is faster in 1 of 2"
    assert lines(reported(*cells))[-3] == f"without-model: 0.995 of what ours ends with, {noise}"


def test_stocks_budget_is_no_share_of_chances() -> None:
    (run,) = reported(cell("stock-16", {16: 60.0}, 60.0))["runs"]
    assert run["chance_trials_share"] is None
    assert run["over_chance"] == 0.75


def test_runs_that_were_looked_at_different_shares_are_told_at_those_that_all_have() -> None:
    found = reported(cell("ours", {4: 90.0, 16: 60.0}, 60.0), cell("ours", {8: 70.0, 16: 60.0}, 60.0, seed=1))
    assert found["arms"]["ours"]["all"]["curve"] == {0.0: pytest.approx(1.0), 1.0: pytest.approx(0.6)}
    assert any(line.endswith("0.0: 1.000 1.0: 0.600") for line in lines(found))


def test_cells_of_one_thread_and_of_two_are_others(tmp_path: Path) -> None:
    asked = arguments(tmp_path, "ours", seeds=1)
    asked.threads = [1, 2]
    assert [cell.name for cell in _select_cells(asked)][:4] == [
        "a-haswell-1-zero-0",
        "a-haswell-1-chance-0",
        "a-haswell-1-ours-0",
        "a-haswell-2-zero-0",
    ]
    found = reported(cell("ours", {}, 60.0), cell("without-model", {}, 90.0, threads=1))
    assert found["parts"] == {}


def test_a_cell_that_fails_is_kept_and_told_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measured(args: Namespace, asked: ablation.Cell) -> dict[str, Any]:
        if asked.arm.name == "without-model":
            raise TimeoutError("it took longer than 600 s")
        (args.schedules / asked.name).mkdir(parents=True)
        return cell(asked.arm.name, {}, 70.0)

    monkeypatch.setattr(ablation, "_measure", measured)
    arms = ["--arms", "without-model", "ours", "--seeds", "1"]
    raw = ["--raw", str(tmp_path / "raw"), "--schedules", str(tmp_path / "schedules")]
    monkeypatch.setattr("sys.argv", ["ablation", "m.onnx", *arms, *raw])
    main()
    told = capsys.readouterr().out
    assert "TimeoutError: it took longer than 600 s" in told.splitlines()[-3]
    assert told.splitlines()[-1].startswith("ours over chance")
    assert len(list((tmp_path / "raw").iterdir())) == 4


def test_nothing_is_tuned_for_want_of_what_it_would_be_timed_beside(tmp_path: Path) -> None:
    zero, chance, ours = list(_select_cells(arguments(tmp_path, "ours", seeds=1)))[:3]
    asked = arguments(tmp_path)
    assert _missing_references(asked, zero) == []
    assert _missing_references(asked, chance) == [zero.name]
    assert _missing_references(asked, ours) == [zero.name, chance.name]
