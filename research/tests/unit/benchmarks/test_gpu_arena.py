"""The comparison on recorded GPU kernels: its figures, its verdicts and the column of the page."""

import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks.gpu_arena import (
    GOAL,
    HEADING,
    NO_GAIN,
    NOT_MEASURED,
    Score,
    _add_verdicts,
    chance_score,
    gpu_arenas,
    score_of,
    with_column,
)
from benchmarks.lab.replay_search import RecordedArena, ShownSpace
from benchmarks.lab.shared_models import play_together
from benchmarks.lab.shipped_recordings import shipped_recording, shipped_recordings
from mallorn.core.errors import NotFound
from mallorn.core.registry import resolve
from mallorn.searchers.synthetic_space import fit_on_history
from mallorn_research.replay.recording_file import read_tasks
from research.tests.unit.replay.made_up import made_up

PAGE = """# Systems

| system | options | what it brings |
|---|---|---|
| A | `--search ga`, `sa` | x |
| B | `--families operator`; `--cost-model tlp` | x |
| C | `--mode one-shot` | x |
"""


def test_a_search_is_judged_by_its_trials_to_the_goal_and_its_area() -> None:
    assert score_of([math.inf, 2.0, 1 / GOAL, 1.0]) == Score(3.0, pytest.approx((0.5 + GOAL + 1) / 4))
    assert score_of([2.0, 1.5]).trials == 2.0, "a search that never gets there counts with its budget"


def test_chance_is_what_draws_without_looking_come_to() -> None:
    arena = RecordedArena(made_up(12), ShownSpace.RECORDED)
    times = [trial.latency_us for trial in arena.recorded.task.trials]
    good = sum(us is not None and us <= arena.optimum_us / GOAL for us in times)
    assert 1 <= chance_score(arena).trials <= (len(times) + 1) / (good + 1), (
        "a geometric mean is below the mean"
    )


def test_an_option_earns_only_if_it_gains_on_nearly_every_task() -> None:
    def row(name: str, areas: list[float]) -> dict[str, object]:
        scores = {str(task): Score(1.0, area) for task, area in enumerate(areas)}
        return {"seam": "search", "name": name, "scores": scores}

    base = np.linspace(0.5, 0.8, 10)
    one_lucky = [base[0] + 1.0, *base[1:]]
    rows = [row("random", [*base]), row("ga", [*(base + 0.1)]), row("sa", one_lucky)]
    _add_verdicts(rows)
    assert [each["verdict"] for each in rows] == ["baseline", "earns", "no gain shown"]


def test_the_column_names_what_earns_and_says_what_nobody_measured() -> None:
    options = [
        {"seam": "search", "name": "ga", "verdict": "no gain shown"},
        {"seam": "search", "name": "sa", "verdict": "earns"},
        {"seam": "families", "name": "operator", "verdict": "no gain shown"},
    ]
    page = with_column(PAGE, options)
    assert HEADING in page
    assert "| x | *earns*: `sa` |" in page
    assert f"`--cost-model tlp` | x | {NO_GAIN} |" in page
    assert f"| `--mode one-shot` | x | {NOT_MEASURED} |" in page
    assert with_column(page, options) == page
    assert with_column(page, []).count(NOT_MEASURED) == 3


def test_the_shipped_recording_has_the_kernels_of_a_gpu_and_a_search_plays_on_it() -> None:
    file = shipped_recording("h200")
    assert shipped_recordings()["h200"] == file
    tasks = read_tasks(file)
    assert len(tasks) == 12
    assert all('"kind":"cuda"' in task.target and task.optimum_us is not None for task in tasks)
    arenas = gpu_arenas([file])
    assert 0 < len(arenas) < 12, "a task of two kernels shows nothing of a search"
    with pytest.raises(NotFound, match="z80"):
        shipped_recording("z80")


def test_tasks_that_are_played_together_measure_every_candidate_once() -> None:
    arenas = [RecordedArena(made_up(9, seed), ShownSpace.RECORDED) for seed in (0, 1)]
    searchers = [resolve("search", "random")(None) for _ in arenas]
    curves = play_together(
        arenas, "operator", searchers, resolve("cost_model", "forest"), round_size=4, seed=0
    )
    assert [len(curve) for curve in curves] == [9, 9]
    assert all(curve[-1] == 1.0 for curve in curves)


def test_a_replay_fits_a_model_to_its_own_view(tmp_path: Path) -> None:
    arena = RecordedArena(made_up(30), ShownSpace.RECORDED)
    seen: list[tuple[int, ...]] = []

    class Watched:
        view = "loops"

        def fit(self, rows: np.ndarray, *_: object, **__: object) -> None:
            seen.append(rows.shape)

    fit_on_history(arena.space, arena.recorded.task.trials, Watched, 0)  # type: ignore[arg-type]
    (shape,) = seen
    assert shape == (30, 48 * 20)
