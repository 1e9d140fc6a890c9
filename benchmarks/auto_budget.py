"""When the budget `auto` ends jobs on recorded and synthetic curves, and the gain it misses.

python -m benchmarks.auto_budget [--worth 0.0025 0.005 0.01] [--json FILE]

Jobs are simulated as in `python -m benchmarks.planner_sim`, on one device. After its end a curve does not
improve, so a job that continues shows how long `auto` waits in vain. `left` is the latency at the job's end
over that at the end of all curves. `hoped` is the mean gain predicted for the next 100 trials and `won` the
mean gain of these, over all decisions at least 100 trials before the end. The headline is the geometric
mean of `left` over the recorded models at the planner's own threshold.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, geometric_mean
from typing import Final
from unittest.mock import patch

from benchmarks.hosts import describe_host
from benchmarks.sim import play as playing
from benchmarks.sim.curve_file import CurveFile
from benchmarks.sim.curves import ModelCurves, recordings
from benchmarks.sim.fitted import constants
from benchmarks.sim.state import new_job
from benchmarks.sim.synthetic import SHAPES
from mallorn.core.values.expected_gain import LOOK_AHEAD, WORTH
from mallorn.services.planner.plan_rounds import plan_rounds
from mallorn.services.planner.planner_values import JobPlan, JobView

CURVES: Final = Path(__file__).parent / "data" / "curves.parquet"
POLICY: Final = "dynatune"
# Only the first model of each synthetic shape: it shows weaknesses, not averages.
DRAWN_SEED: Final = 0


@dataclass(frozen=True)
class Ended:
    """A simulated job at the point where `auto` ended it."""

    curves: str
    recorded: bool
    tasks: int
    worth: float
    trials: int
    of: int  # trials in the curves
    seconds: float
    left: float
    hoped: float
    won: float
    why: str


def main() -> None:
    args = _arguments()
    file = CurveFile(args.curves)
    recorded = [model for seeds in recordings(file.rounds()).values() for model in seeds]
    synthetic = [draw(DRAWN_SEED) for draw in SHAPES.values()]
    ended = list(_play_all(recorded, synthetic, args.worth))
    headline = geometric_mean(each.left for each in ended if each.recorded and each.worth == WORTH)
    print(f"latency where auto ended over that of all curves, geometric mean: {headline:.3f}")
    if args.json:
        raw = {"benchmark": "auto_budget", "seed": DRAWN_SEED, **describe_host(), "policy": POLICY}
        raw |= {"recorded_on": file.facts(), "ended": [asdict(each) for each in ended]}
        args.json.write_text(json.dumps(raw | {"headline": round(headline, 3)}, indent=1) + "\n")


def _play_all(
    known: Sequence[ModelCurves], drawn: Sequence[ModelCurves], worths: Sequence[float]
) -> Iterator[Ended]:
    for model in (*known, *drawn):
        for worth in sorted({*worths, WORTH}):
            end = played(model, worth, recorded=model in known)
            share = f"{end.trials:5} of {end.of} trials, {end.seconds:6.0f} s, {end.left:.3f} left"
            expected = f"hoped {end.hoped:.2%}, won {end.won:.2%}"
            print(f"{model.name:12} {worth:.2%}: {share}; {expected}", flush=True)
            yield end


def played(model: ModelCurves, worth: float, *, recorded: bool) -> Ended:
    """Simulate a job that ends when further trials promise less than `worth`."""
    outlooks: list[tuple[int, float]] = []

    def record_outlook(view: JobView) -> JobPlan:
        decision = plan_rounds(view)
        if decision.outlook is not None:
            outlooks.append(
                (view.spent_trials - sum(task.in_flight for task in view.tasks), decision.outlook.gain)
            )
        return decision

    job = new_job(model, POLICY, DRAWN_SEED, slots=2)
    job.budget = None
    with (
        patch.object(playing, "plan_rounds", record_outlook),
        constants({"mallorn.services.planner.budgets:WORTH": worth}),
    ):
        run = playing.play(job, 1, model.final_us)
    last = run.steps[-1]
    pairs = [
        (gain, run.won(count, LOOK_AHEAD)) for count, gain in outlooks if count + LOOK_AHEAD <= last.trials
    ]
    return Ended(
        curves=model.name,
        recorded=recorded,
        tasks=len(model.tasks),
        worth=worth,
        trials=last.trials,
        of=model.trials,
        seconds=round(last.seconds, 1),
        left=round(last.latency_us / model.final_us, 4),
        hoped=round(fmean(gain for gain, _ in pairs), 5) if pairs else 0.0,
        won=round(fmean(won for _, won in pairs), 5) if pairs else 0.0,
        why=run.finished,
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--curves", type=Path, default=CURVES)
    parser.add_argument(
        "--worth", type=float, nargs="+", default=[0.0025, 0.005, 0.01], help="shares of the latency"
    )
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
