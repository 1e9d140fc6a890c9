"""Accuracy of cost models that need no training, on measured candidates.

python -m benchmarks.untaught DATA_DIR ... [--tasks 6] [--candidates 24] [--json FILE]

Of each dataset's first job, takes the tasks with most work, and random timed candidates of
each. `draft` reads their decisions, `tuna` their generated code. Candidates were chosen by a
search, so most are near the best; random order has accuracy 0.5.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from sqlalchemy import select
from sqlalchemy.orm import Session

from benchmarks.hosts import describe_host
from mallorn.cli.dataset_options import dataset
from mallorn.core.registry import resolve
from mallorn.core.values.trial import Trial
from mallorn.costmodels.base import CostModel
from mallorn.costmodels.labels import labels
from mallorn.costmodels.metrics import pairwise_accuracy
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.sketches import Sketches
from mallorn.db.repositories.targets import Targets
from mallorn.db.repositories.tasks import Tasks
from mallorn.db.repositories.trials import Trials
from mallorn.db.repositories.workloads import Workloads
from mallorn.db.session import Database
from mallorn.db.tables import Job, Workload
from mallorn.workers.interfaces.candidate_compiler import CandidateCompiler
from mallorn.workers.round.feature_lookup import FeatureLookup
from mallorn.workers.round.round_context import work_of

MODELS: Final = ("draft", "tuna")
FEWEST: Final = 8


def main() -> None:
    args = _arguments()
    figures: dict[str, dict[str, list[float]]] = {}
    with CandidateCompiler() as compiler:
        for data in args.data:
            with dataset(data, None) as database:
                figures[str(data)] = _judge(FeatureLookup(database, compiler), database, args)
            line = ", ".join(f"{name} {np.mean(each):.3f}" for name, each in figures[str(data)].items())
            print(f"{data}: {line}", flush=True)
    means = {name: float(np.mean([np.mean(each[name]) for each in figures.values()])) for name in MODELS}
    if args.json:
        line = {"headline": means["tuna"], "means": means, "figures": figures}
        args.json.write_text(json.dumps(describe_host() | line, indent=1) + "\n")
    print("share of pairs in order: " + ", ".join(f"{name} {mean:.3f}" for name, mean in means.items()))


def _judge(viewer: FeatureLookup, database: Database, args: argparse.Namespace) -> dict[str, list[float]]:
    with database.session() as session:
        job = Jobs(session).get(session.scalars(select(Job.id).order_by(Job.created_at)).first() or "", None)
        picked = list(_tasks(session, job, args))
    accuracy: dict[str, list[float]] = {name: [] for name in MODELS}
    for workload, trials in picked:
        for name in MODELS:
            accuracy[name].append(_accuracy(viewer, job, workload, trials, name))
    return accuracy


def _tasks(session: Session, job: Job, args: argparse.Namespace) -> Iterator[tuple[Workload, list[Trial]]]:
    """Yield the tasks with most FLOPs, with some of their timed trials."""
    rng = np.random.default_rng(args.seed)
    tasks = Workloads(session).get_many([task.workload_id for task in Tasks(session).list(job.id)])
    tasks_left = args.tasks
    for workload in sorted(tasks, key=lambda each: -each.flops):
        timed = [trial for trial in Trials(session).history(workload.id, job.target_id) if trial.time_us]
        if len(timed) >= FEWEST and tasks_left:
            tasks_left -= 1
            yield workload, [timed[index] for index in rng.permutation(len(timed))[: args.candidates]]


def _accuracy(
    viewer: FeatureLookup, job: Job, workload: Workload, trials: Sequence[Trial], name: str
) -> float:
    kind: type[CostModel] = resolve("cost_model", name)
    candidates = [trial.candidate for trial in trials]
    with viewer.database.session() as session:
        sketches = Sketches(session).by_key({candidate.sketch for candidate in candidates})
        target = Targets(session).get(job.target_id).text
    work = work_of(workload, job.target_id, target, sketches)
    seen = viewer.look_up_features(kind.view, work, candidates)
    valid = [trial for trial, has in zip(trials, seen.known, strict=True) if has]
    groups = np.zeros(len(valid), dtype=np.int64)
    truth = labels([trial.time_us for trial in valid], groups, [trial.outcome for trial in valid])
    return pairwise_accuracy(kind.made_for(job.machine).predict(seen.rows[seen.known]).mean, truth, groups)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("data", nargs="+", type=Path, help="data directories of services that tuned")
    parser.add_argument("--tasks", type=int, default=6, help="of each job")
    parser.add_argument("--candidates", type=int, default=24, help="of each task")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
