"""What measurements of other networks are worth for a network that was never measured.

python -m benchmarks.known MODEL.onnx ... --work DIR [--target TEXT ...] [--trials 1000] [--seed 0]

For each network and target, `own` is a job with this many trials on an empty dataset. Then a
dataset is made of all *other* networks' measurements on all targets, and bases trained on it;
on copies of it run a zero-shot job, a one-shot job, and `warm`, a search with a fifth of the
trials. `zero` is a job without trials on an empty dataset; `own@N` is the state of `own` after
16 and 64 trials per task. All are compiled and timed in turn.

Each finished cell is one raw file in docs/results/known/; DIR keeps the measurements, so a
second run adds missing cells. The headline is the latency of zero-shot over that at the end of
`own`, a geometric mean over networks and targets.
"""

import argparse
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.arms import Arm, compare_latency, count_tasks, mallorn_arm
from benchmarks.cells import Cells
from benchmarks.hosts import describe_host
from benchmarks.known_report import WARM, lines, report
from benchmarks.prefixes import our_prefix
from mallorn.cli.dataset_options import dataset
from mallorn.core.job_options import JobOptions
from mallorn.core.targets import Target, parse_target
from mallorn.db.dataset.export import export
from mallorn.db.dataset.import_dataset import import_dataset
from mallorn.db.dataset.take_snapshots import take_snapshot
from mallorn.db.repositories.snapshots import Selection
from mallorn.research.pretraining.pretrain import pretrain
from mallorn.research.pretraining.read_measurements import read_measurements
from mallorn.workers.device.detect_host import detect_target

RAW: Final = Path("docs/results/known")
TASK_TRIALS: Final = (16, 64)
WARM_SHARE: Final = 0.2
ZERO: Final = "zero"
ANSWERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "zero-shot": {"mode": "zero-shot"},
    "one-shot": {"mode": "one-shot"},
}
ARMS: Final = (ZERO, *ANSWERS, WARM)


@dataclass(frozen=True)
class Place:
    """A network on a target; `work` is the folder that keeps measurements."""

    model: Path
    target: Target
    work: Path

    @property
    def name(self) -> str:
        return f"{self.model.stem}-{self.target.attrs.get('mcpu', self.target.kind)}"

    @property
    def own(self) -> Path:
        return self.work / "own" / self.name

    @property
    def parcel(self) -> Path:
        return self.own / "parcel"


def main() -> None:
    args = _arguments()
    targets = [parse_target(text) for text in args.target] or [detect_target()]
    places = [Place(model.resolve(), target, args.work) for target in targets for model in args.models]
    for place in places:
        _tune(place, args)
    cells = Cells(args.raw)
    for place in places:
        if place.name not in cells:
            cells.keep(place.name, _measure(place, places, args) | describe_host())
            print(*lines(report([cells[place.name]])), sep="\n", flush=True)
    result = report([cells[place.name] for place in places])
    if args.json:
        args.json.write_text(json.dumps({"benchmark": "known", **describe_host(), **result}, indent=1) + "\n")
    print("\n".join(lines(result)), flush=True)


def _tune(place: Place, args: argparse.Namespace) -> None:
    """Run the network's own job unless its export, which is written last, exists."""
    if place.parcel.exists():
        return
    shutil.rmtree(place.own, ignore_errors=True)
    place.own.mkdir(parents=True)
    arm = mallorn_arm(place.model, place.target, args.trials, args.seed, place.own, {}, keep_records=True)
    (place.own / "arm.json").write_text(json.dumps(arm.figures()))
    with dataset(place.own / "data", None) as database:
        export(database, take_snapshot(database, None, Selection()), place.parcel)
    print(f"{place.name}: {arm.trials} trials in {arm.total_sec:.0f} s", flush=True)


def _measure(place: Place, places: Sequence[Place], args: argparse.Namespace) -> dict[str, Any]:
    folder = args.work / "known" / place.name
    shutil.rmtree(folder, ignore_errors=True)
    bases = _learn(
        [each for each in places if each.model != place.model], args.base, folder / "base" / "data"
    )
    own = json.loads((place.own / "arm.json").read_text())
    records = own["details"].pop("records")
    arms = dict(_jobs(place, folder, args))
    engines = {"own": Path(own["schedules"])} | {name: arm.schedules for name, arm in arms.items()}
    tasks = count_tasks(place.model, place.target, JobOptions().recipe)
    for each in TASK_TRIALS:
        prefix = our_prefix(place.own / "data", place.target, records, each * tasks, folder / f"own-{each}")
        engines[f"own@{each}"] = prefix
    recipe = JobOptions().recipe
    return {
        "model": place.model.stem,
        "target": place.target.attrs,
        "tasks": tasks,
        "bases": bases,
        "arms": {"own": own} | {name: arm.figures() for name, arm in arms.items()},
        "latency_us": compare_latency(place.model, place.target, recipe, engines, folder),
    }


def _learn(others: Sequence[Place], models: Sequence[str], data: Path) -> list[str]:
    """Import others' measurements, pretrain bases on them; return the active ones' names."""
    with dataset(data, None, create=True) as database:
        for other in others:
            import_dataset(database, other.parcel)
        training_data = read_measurements(database, None, Selection())
        bases = [base for model in models for base in pretrain(database, training_data, model)]
    return [f"{base.name} of {base.target}" for base in bases if base.active]


def _jobs(place: Place, folder: Path, args: argparse.Namespace) -> Iterator[tuple[str, Arm]]:
    """Run each arm on a new dataset: empty for `zero`, else with others' measurements."""
    for name in args.arms:
        if name == ZERO:
            (folder / name).mkdir()
        else:
            shutil.copytree(folder / "base", folder / name)
        budget = round(args.trials * WARM_SHARE) if name == WARM else 0
        options = ANSWERS.get(name, {})
        yield name, mallorn_arm(place.model, place.target, budget, args.seed, folder / name, options)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--work", type=Path, required=True, help="where measurements are kept")
    parser.add_argument(
        "--target", action="append", default=[], help="several times for several; default: local"
    )
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--arms", nargs="+", choices=ARMS, default=ARMS, help="beside the network's own trials"
    )
    parser.add_argument("--base", nargs="+", default=[JobOptions().cost_model], help="what is pre-trained")
    parser.add_argument("--raw", type=Path, default=RAW, help="the folder of finished cells")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
