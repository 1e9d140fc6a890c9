"""Compare searchers, cost models, samplers, groupings and policies on recorded GPU kernels, without a GPU.

python -m benchmarks.gpu_arena [RECORDING ...] [--seeds 3] [--jobs 2] [--cells FILE] [--json FILE]
python -m benchmarks.gpu_arena --column FILE     # writes the GPU column of docs/systems.md from a --json file

A search's proposals become the nearest recorded candidates that it has not measured (docs/replay.md). One
choice differs from the defaults of a job at a time. A task takes part if at least FEWEST of its candidates
have a time. Two figures of each search: the trials until a candidate has GOAL of the speed of the best known
one, and the mean over all trials of the share of that speed reached so far (area under the curve). Both are
compared with chance, which draws recorded candidates without looking, and an option's area with that of its
baseline: `random`, no cost model, `topk`, `none` or `round-robin`. Intervals hold 95 % of RESAMPLES bootstrap
samples over tasks (over seeds for policies). An option earns if an interval that holds all options of its
seam together in 95 % of cases (Bonferroni) lies above its baseline.
"""

import argparse
import json
import os
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from benchmarks.hosts import describe_host
from benchmarks.lab.cell_file import CellFile
from benchmarks.lab.cells import Cell, Finished, parse, run_all
from benchmarks.lab.grid import NO_MODEL, STANDARD, Combination
from benchmarks.lab.replay_search import RecordedArena, ShownSpace, play
from benchmarks.lab.shared_models import play_together
from benchmarks.lab.shipped_recordings import shipped_recordings
from benchmarks.sim.curves import ModelCurves, TaskCurve
from benchmarks.sim.play import play as play_job
from benchmarks.sim.state import new_job
from mallorn.core.errors import MallornError
from mallorn.core.registry import REGISTRY, list_names, resolve
from mallorn.costmodels.views import VIEWS
from mallorn_research.replay.recording_file import read_facts, read_tasks

FEWEST: Final = 8
GOAL: Final = 0.95
RESAMPLES: Final = 20_000
ERRORS: Final = 0.05  # share of seams of which an option without a gain may be said to earn
CHANCE_DRAWS: Final = 2000
BATCH: Final = 4  # candidates of a round; recordings hold some twenty a task
BASELINES: Final = {
    "search": "random",
    "cost_model": NO_MODEL,
    "sampler": STANDARD.sampler,
    "families": "none",
    "policy": "round-robin",
}
PAGE: Final = Path("docs/systems.md")
HEADING: Final = "| system | options | what it brings | on a GPU |"
NOT_MEASURED: Final = "?"
NO_GAIN: Final = "-"
_COLUMNS: Final = (
    ("trials", ".1f"),
    ("trials_over_chance", ".2f"),
    ("area", ".3f"),
    ("area_over_chance", ".3f"),
    ("area_over_baseline", ".3f"),
)
_FLAG: Final = re.compile(r"--(search|cost-model|sampler|families|policy) ([\w-]+)")
Floats: TypeAlias = NDArray[np.float64]
Curves: TypeAlias = Mapping[str, Sequence[Sequence[float]]]  # by task, a curve per seed


@dataclass(frozen=True, slots=True)
class Score:
    """The two figures of searches of one task, means over seeds."""

    trials: float
    area: float


def main() -> None:
    """Replay what is missing, and print and store the table; or write the page's column."""
    options = _arguments()
    if options.column:
        results = json.loads(options.column.read_text()) if options.column.exists() else {}
        PAGE.write_text(with_column(PAGE.read_text(), results.get("options", [])))
        return
    os.environ["OMP_NUM_THREADS"] = "1"
    files = options.recordings or list(shipped_recordings().values())
    arenas = gpu_arenas(files)
    chance = {arena.name: chance_score(arena) for arena in arenas}
    rows: list[dict[str, Any]] = []
    curves = _searches(arenas, options)
    for seam, name, found in (*curves, *_groupings(arenas, options.seeds)):
        rows.append({"seam": seam, "name": name, **_figures(found, chance)})
    _add_verdicts(rows)
    rows += _policies(arenas, options.seeds)
    result = {
        "benchmark": "gpu_arena",
        "recordings": {file.name: read_facts(file) for file in files},
        "seeds": options.seeds,
        "round": BATCH,
        "goal": GOAL,
        "tasks": [_about(arena, chance[arena.name]) for arena in arenas],
        "options": [{name: value for name, value in row.items() if name != "scores"} for row in rows],
        **describe_host(),
    }
    sys.stdout.write(table(result))
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


def gpu_arenas(files: Sequence[Path]) -> list[RecordedArena]:
    """Return the tasks of GPU targets that have enough timed candidates."""
    tasks = [task for file in files for task in read_tasks(file) if '"kind":"cuda"' in task.target]
    enough = [task for task in tasks if sum(t.latency_us is not None for t in task.trials) >= FEWEST]
    return [RecordedArena(task, ShownSpace.RECORDED) for task in enough]


def chance_score(arena: RecordedArena) -> Score:
    """Return the expected figures of draws of recorded candidates without replacement."""
    times = np.array([np.inf if t.latency_us is None else t.latency_us for t in arena.recorded.task.trials])
    rng = np.random.default_rng(0)
    scores = [
        score_of((np.minimum.accumulate(rng.permutation(times)) / arena.optimum_us).tolist())
        for _ in range(CHANCE_DRAWS)
    ]
    return Score(
        float(np.exp(np.mean(np.log([s.trials for s in scores])))), float(np.mean([s.area for s in scores]))
    )


def score_of(curve: Sequence[float]) -> Score:
    """Return the figures of one search: its curve has best time over optimum after each trial."""
    ratios = np.asarray(curve)
    reached = np.flatnonzero(ratios <= 1 / GOAL)
    return Score(float(reached[0] + 1) if len(reached) else float(len(ratios)), float(np.mean(1 / ratios)))


def _searches(arenas: Sequence[RecordedArena], options: argparse.Namespace) -> list[tuple[str, str, Curves]]:
    """Play every search, cost model and sampler; return their curves."""
    by_name = {arena.name: arena for arena in arenas}
    compared = list(_combinations())
    cells = CellFile(options.cells, parse)
    chosen = [
        Cell(arena.kind, arena.name, each, seed, len(arena.recorded.candidates))
        for seed in range(options.seeds)
        for arena in arenas
        for each in dict.fromkeys(combination for _, _, combination in compared)
    ]
    missing = [(by_name[cell.arena], cell) for cell in chosen if cell not in cells]
    for count, finished in enumerate(run_all(missing, options.jobs, BATCH), 1):
        cells.add(finished)
        print(f"\r{count} of {len(missing)} searches", end="", file=sys.stderr, flush=True)
    found: defaultdict[Combination, defaultdict[str, list[list[float]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for finished in cells.of(chosen):
        found[finished.cell.combination][finished.cell.arena].append(curve_of(finished))
    return [(seam, name, found[combination]) for seam, name, combination in compared]


def curve_of(finished: Finished) -> list[float]:
    """Return best time over optimum after each trial; the last value stays if none is left."""
    return [finished.after(trial) for trial in range(1, finished.cell.trials + 1)]


def _combinations() -> Iterator[tuple[str, str, Combination]]:
    """Yield what differs from a job's defaults in one choice and needs no compiler or missing package."""
    for name in list_names("search"):
        yield "search", name, Combination(name, STANDARD.cost_model, STANDARD.sampler)
    for name in (NO_MODEL, *list_names("cost_model")):
        if name == NO_MODEL or _plays(name):
            yield "cost_model", name, Combination(STANDARD.search, name, STANDARD.sampler)
    for name in list_names("sampler"):
        yield "sampler", name, Combination(STANDARD.search, STANDARD.cost_model, name)


def _plays(cost_model: str) -> bool:
    """Return whether a cost model's packages are installed and its features need no compiler."""
    kind = resolve("cost_model", cost_model)
    try:
        kind()
    except MallornError:
        return False
    return not VIEWS[kind.view].lowered


def _groupings(arenas: Sequence[RecordedArena], seeds: int) -> Iterator[tuple[str, str, Curves]]:
    """Play all tasks together with each grouping; a family's tasks share the default cost model."""
    make_model = STANDARD.make_model()
    if make_model is None:
        return
    for grouping in sorted(REGISTRY["families"]):
        found = defaultdict[str, list[list[float]]](list)
        for seed in range(seeds):
            searchers = [STANDARD.searcher() for _ in arenas]
            curves = play_together(arenas, grouping, searchers, make_model, round_size=BATCH, seed=seed)
            for arena, curve in zip(arenas, curves, strict=True):
                found[arena.name].append(curve)
        yield "families", grouping, found


def _policies(arenas: Sequence[RecordedArena], seeds: int) -> list[dict[str, Any]]:
    """Compare policies by a job of all tasks, whose candidates come in the default search's order.

    Weights make all tasks' best times count alike. The baseline is paired by seed.
    """
    trials: dict[str, list[int]] = {}
    for policy in sorted(REGISTRY["policy"]):
        for seed in range(seeds):
            job = new_job(_job_curves(arenas, seed), policy, seed, max_open_rounds=1, round_size=BATCH)
            run = play_job(job, 1, _job_curves(arenas, seed).final_us)
            trials.setdefault(policy, []).append(run.trials_to(1 / GOAL))
    rows = []
    for policy, counts in trials.items():
        logs = np.log(trials[BASELINES["policy"]]) - np.log(counts)
        low, high = _interval(logs)
        saved = float(np.exp(logs.mean()))
        about = {"seam": "policy", "name": policy, "job_trials": float(np.exp(np.mean(np.log(counts))))}
        verdict = "baseline" if policy == BASELINES["policy"] else "earns" if low > 0 else "no gain shown"
        rows.append(
            about | {"saves": saved, "saves_interval": [np.exp(low), np.exp(high)], "verdict": verdict}
        )
    return rows


def _job_curves(arenas: Sequence[RecordedArena], seed: int) -> ModelCurves:
    slowest_us = max(arena.optimum_us for arena in arenas)
    curves = []
    for arena in arenas:
        searcher, model = STANDARD.searcher(), STANDARD.make_model()
        count = len(arena.recorded.candidates)
        played = play(arena, searcher, model, trials=count, round_size=BATCH, seed=seed).trials
        task, weight = arena.recorded.task, max(1, round(slowest_us / arena.optimum_us))
        times = tuple(trial.latency_us for trial in played)
        seconds = (1.0,) * len(times)
        curves.append(
            TaskCurve(arena.name, weight, task.flops, task.op, task.structure, times, seconds, True)
        )
    return ModelCurves("recorded GPU tasks", tuple(curves))


def _figures(curves: Curves, chance: Mapping[str, Score]) -> dict[str, Any]:
    """Return the figures of an option over all tasks, with their intervals."""
    scores = {
        task: Score(
            float(np.exp(np.mean(np.log([score_of(curve).trials for curve in found])))),
            float(np.mean([score_of(curve).area for curve in found])),
        )
        for task, found in curves.items()
    }
    trials = np.log([scores[task].trials for task in scores])
    against = trials - np.log([chance[task].trials for task in scores])
    areas = np.array([scores[task].area for task in scores])
    gains = areas - np.array([chance[task].area for task in scores])
    return {
        "trials": float(np.exp(trials.mean())),
        "trials_interval": np.exp(_interval(trials)).tolist(),
        "trials_over_chance": float(np.exp(against.mean())),
        "trials_over_chance_interval": np.exp(_interval(against)).tolist(),
        "area": float(areas.mean()),
        "area_interval": list(_interval(areas)),
        "area_over_chance": float(gains.mean()),
        "area_over_chance_interval": list(_interval(gains)),
        "scores": scores,
    }


def _add_verdicts(rows: list[dict[str, Any]]) -> None:
    """Compare each option's areas with those of its seam's baseline, task by task."""
    base = {row["seam"]: row["scores"] for row in rows if row["name"] == BASELINES[row["seam"]]}
    for row in rows:
        own, plain = row["scores"], base[row["seam"]]
        gains = np.array([own[task].area - plain[task].area for task in own])
        options = sum(other["seam"] == row["seam"] for other in rows) - 1
        row["area_over_baseline"] = float(gains.mean())
        row["area_over_baseline_interval"] = list(_interval(gains))
        row["verdict"] = _verdict(row["seam"], row["name"], gains, options)


def _verdict(seam: str, name: str, gains: Floats, options: int) -> str:
    """Return what the gains of one of several options over its baseline show, task by task."""
    if name == BASELINES[seam]:
        return "baseline"
    return "earns" if _interval(gains, ERRORS / max(1, options))[0] > 0 else "no gain shown"


def _interval(values: Floats, errors: float = ERRORS) -> tuple[float, float]:
    """Return bounds of the means of bootstrap samples, outside of which a share `errors` lies."""
    draws = np.random.default_rng(0).integers(len(values), size=(RESAMPLES, len(values)))
    low, high = np.percentile(values[draws].mean(axis=1), (50 * errors, 100 - 50 * errors))
    return float(low), float(high)


def _about(arena: RecordedArena, chance: Score) -> dict[str, Any]:
    times = [t.latency_us for t in arena.recorded.task.trials if t.latency_us is not None]
    return {
        "name": arena.recorded.task.name,
        "candidates": len(arena.recorded.candidates),
        "timed": len(times),
        "within_goal": sum(us <= arena.optimum_us / GOAL for us in times),
        "best_us": arena.optimum_us,
        "chance_trials": chance.trials,
        "chance_area": chance.area,
    }


def table(result: Mapping[str, Any]) -> str:
    """Return the figures as a Markdown table."""
    tasks = result["tasks"]
    count = sum(task["candidates"] for task in tasks)
    lines = [
        f"{count} candidates of {len(tasks)} tasks, {result['seeds']} seeds, rounds of {result['round']}",
        "",
        f"| option | trials to {GOAL} of the best | over chance | area | less chance's | less baseline's | |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in result["options"]:
        if row["seam"] == "policy":
            saves, (low, high) = row["saves"], row["saves_interval"]
            text = f"{row['job_trials']:.0f} (whole job) | | | | saves {saves:.2f} ({low:.2f}..{high:.2f})"
        else:
            text = " | ".join(_with_interval(row, name, form) for name, form in _COLUMNS)
        lines.append(f"| {row['seam']} `{row['name']}` | {text} | {row['verdict']} |")
    return "\n".join(lines) + "\n"


def _with_interval(row: Mapping[str, Any], name: str, form: str) -> str:
    low, high = row[f"{name}_interval"]
    return f"{row[name]:{form}} ({low:{form}}..{high:{form}})"


def with_column(page: str, options: Sequence[Mapping[str, Any]]) -> str:
    """Return docs/systems.md with its GPU column: what the arena shows of each row's options."""
    verdicts = {(row["seam"], row["name"]): row["verdict"] for row in options}
    lines = []
    for line in page.splitlines():
        cells = line.strip("|").split("|")
        if line.startswith("| system |"):
            line = HEADING
        elif line.startswith("|---"):
            line = "|---|---|---|---|"
        elif line.startswith("| "):
            line = f"|{'|'.join(cells[:3])}| {_words(cells[1], verdicts)} |"
        lines.append(line)
    return "\n".join(lines) + "\n"


def _words(options: str, verdicts: Mapping[tuple[str, str], str]) -> str:
    named: list[tuple[str, str]] = []
    for code in re.findall(r"`([^`]*)`", options):
        named += [(seam.replace("-", "_"), name) for seam, name in _FLAG.findall(code)]
        if named and re.fullmatch(r"[\w-]+", code):
            named.append((named[-1][0], code))  # a further value of the flag before
    known = {name: verdicts[seam, name] for seam, name in named if (seam, name) in verdicts}
    earning = [name for name, verdict in known.items() if verdict == "earns"]
    if earning:
        return f"*earns*: {', '.join(f'`{name}`' for name in earning)}"
    return NO_GAIN if known else NOT_MEASURED


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recordings", type=Path, nargs="*", help="default: all that are shipped")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--cells", type=Path, help="where finished searches are stored, as JSON lines")
    parser.add_argument("--json", type=Path)
    parser.add_argument(
        "--column", type=Path, help="write the page's column from this file, and do nothing else"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
