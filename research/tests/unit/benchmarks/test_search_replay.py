"""The comparison on recordings: which combinations, what is stored, what it comes to, and no compiler."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.lab.cell_file import CellFile
from benchmarks.lab.cells import Cell, Finished, TvmLoaded, parse, run
from benchmarks.lab.chart import chart
from benchmarks.lab.grid import NO_MODEL, STANDARD, Axes, Combination
from benchmarks.lab.summary import WORST, Figures, summarise
from benchmarks.lab.synthetic_arena import SyntheticArena
from benchmarks.lab.unlearned import SAMPLER_TWINS, TWINS
from mallorn.core.errors import InvalidRequest
from mallorn.core.registry import list_names
from mallorn_research.replay.recording_file import write_tasks
from research.tests.unit.replay.made_up import made_up

ROOT = Path(__file__).parents[4]
RANDOM = Combination("random", NO_MODEL, "topk")


def finished(
    steps: list[tuple[int, float]], arena: str = "a", seed: int = 0, **changes: Combination
) -> Finished:
    cell = Cell("recorded", arena, changes.get("combination", RANDOM), seed, 64)
    return Finished(cell, 64, tuple(steps), propose_sec=0.64, fit_sec=0.32)


def test_all_is_every_combination_of_what_is_registered() -> None:
    models, searchers = len(list_names("cost_model")) + 1, len(list_names("search")) + len(TWINS)
    assert len(set(Axes().all())) == searchers * models * (len(list_names("sampler")) + len(SAMPLER_TWINS))


def test_a_star_changes_one_choice_at_a_time_and_holds_the_defaults_once() -> None:
    star = Axes().star()
    searchers = len(list_names("search")) + len(TWINS)
    axes = [searchers, len(list_names("cost_model")) + 1, len(list_names("sampler")) + len(SAMPLER_TWINS)]
    assert len(star) == len(set(star)) == sum(axes) - 2
    assert STANDARD in star


def test_an_unknown_name_is_refused_and_no_model_is_a_choice() -> None:
    with pytest.raises(InvalidRequest, match="nonsense"):
        Axes(searches=["nonsense"]).all()
    (only,) = Axes(["random"], [NO_MODEL], ["topk"]).all()
    assert only.make_model() is None


def test_a_finished_cell_is_stored_at_once_and_not_run_again(tmp_path: Path) -> None:
    file = tmp_path / "new" / "cells.jsonl"
    done = finished([(1, 2.0), (9, 1.01)])
    CellFile(file, parse).add(done)
    again = CellFile(file, parse)
    assert done.cell in again
    assert finished([], seed=1).cell not in again
    assert again.of([done.cell, finished([], seed=1).cell]) == [done]


def test_a_run_tells_when_it_improved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "tvm", raising=False)  # other tests of this process may need it
    arena = SyntheticArena(64, 64, 64)
    done = run(arena, Cell(arena.kind, arena.name, RANDOM, 0, 48))
    trials, ratios = zip(*done.steps, strict=True)
    assert done.played == 48
    assert list(trials) == sorted(set(trials))
    assert list(ratios) == sorted(set(ratios), reverse=True)
    assert all(ratio >= 1.0 for ratio in ratios)


def test_a_replay_with_a_compiler_in_the_process_is_no_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tvm", sys)
    arena = SyntheticArena(64, 64, 64)
    with pytest.raises(TvmLoaded):
        run(arena, Cell(arena.kind, arena.name, RANDOM, 0, 4))


def test_who_never_gets_near_counts_with_the_whole_budget() -> None:
    runs = (finished([(1, 2.0), (16, 1.04)]), finished([(1, 2.0)], seed=1))
    figures = Figures("recorded", RANDOM, runs)
    assert figures.trials == pytest.approx(math.sqrt(16 * 64))
    assert figures.reached == 0.5
    assert figures.final == pytest.approx(math.sqrt(1.04 * 2.0))
    assert (figures.propose_ms, figures.fit_ms) == (pytest.approx(10.0), pytest.approx(5.0))


def test_a_curve_is_a_geometric_mean_and_failures_count_as_the_worst() -> None:
    figures = Figures("recorded", RANDOM, (finished([(2, 4.0)]), finished([(1, 1.0)], seed=1)))
    assert figures.curve([1, 2]) == pytest.approx([math.sqrt(WORST), 2.0])


def test_the_interval_is_over_tasks_and_holds_the_figure() -> None:
    runs = tuple(finished([(at, 1.0)], arena=str(at)) for at in (4, 8, 16, 32))
    low, high = Figures("recorded", RANDOM, runs).trials_interval
    assert 4 <= low < Figures("recorded", RANDOM, runs).trials < high <= 32
    alone = Figures("recorded", RANDOM, (runs[0],))
    assert alone.trials_interval == pytest.approx((4, 4))


def test_the_fewest_trials_come_first() -> None:
    slow = finished([(40, 1.0)])
    fast = finished([(4, 1.0)], combination=STANDARD)
    assert [figures.combination for figures in summarise([slow, fast])] == [STANDARD, RANDOM]


def test_a_chart_is_svg_with_a_line_for_each_curve_and_words_that_are_escaped() -> None:
    panels = {"recorded": {"a<b": [3.0, 1.5, 1.0], "c": [2.0, 2.0, 2.0]}, "wide": {"c": [5.0, 1.0]}}
    root = ElementTree.fromstring(chart(panels, "best & first"))
    lines = root.findall("{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == 3
    assert "a<b" in {text.text for text in root.iter("{http://www.w3.org/2000/svg}text")}
    heights = [float(point.split(",")[1]) for point in lines[0].attrib["points"].split()]
    assert heights == sorted(heights)  # SVG counts downwards, and a curve never rises


def test_the_script_compares_without_tvm_and_writes_its_figures(tmp_path: Path) -> None:
    write_tasks(tmp_path / "s.parquet", [made_up(40)], {"hosts": []})
    program = "import sys; from benchmarks.search_replay import main; main(); assert 'tvm' not in sys.modules"
    words = ["--spaces", "s.parquet", "--search", "random", "evolutionary", "--cost-model", "random"]
    words += ["--sampler", "topk", "--shapes", "0", "--trials", "32", "--seeds", "1", "--cells", "c.jsonl"]
    command = [sys.executable, "-c", program, *words, "--svg", "a.svg", "--json", "a.json"]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    for _ in range(2):
        ended = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)
        assert ended.returncode == 0, ended.stderr
    raw = json.loads((tmp_path / "a.json").read_text())
    assert ended.stdout.splitlines()[-1] == raw["headline"]
    assert {row["kind"] for row in raw["figures"]} == {"recorded", "wide"}
    assert len((tmp_path / "c.jsonl").read_text().splitlines()) == 4
    assert (tmp_path / "a.svg").read_text().startswith("<svg")
