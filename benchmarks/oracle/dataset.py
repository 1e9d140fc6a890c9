"""Puts what the oracle measured into a dataset, from which bases learn.

python -m benchmarks.oracle.dataset FOLDER --data DATA_DIR --report docs/results/oracle.json

FOLDER holds a file of trials and one of results for each task and target; `--report` says on which host they
were taken. Candidates of sketches that the task has no more are left out and counted.
"""

import argparse
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from uuid import NAMESPACE_URL, uuid5

from sqlalchemy.orm import Session

from benchmarks.oracle.clock import REPEATS
from benchmarks.oracle.stream import read_trials
from benchmarks.oracle.tasks import task_of
from mallorn.cli.dataset_options import dataset
from mallorn.core.outcomes import Outcome
from mallorn.core.states import MeasurementKind
from mallorn.core.targets import Target, parse_target
from mallorn.core.values.trial import Trial
from mallorn.db.measurement_codec import pack_decisions, pack_times
from mallorn.db.repositories.measurements import ForeignRows
from mallorn.db.repositories.measuring_contexts import Contexts
from mallorn.db.repositories.snapshots import Sources
from mallorn.db.repositories.targets import Targets
from mallorn.db.repositories.workloads import Workloads
from mallorn.db.session import Database
from mallorn.searchers.space import Sketch
from mallorn.workers.interfaces.candidate_compiler import CandidateCompiler
from mallorn.workers.measure.measurer_interface import Program
from mallorn.workers.model_import.run import new_workload
from mallorn.workers.round.store_referenced_rows import store_sketches

ROW_BYTES: Final = 7  # of a row's name, which has to be positive in 64 bits
# How the oracle's clock times; nothing else in a dataset may count as the same.
EVALUATOR: Final = {"repeat": REPEATS, "stopping": "oracle", "cache": "warm"}
Host = Mapping[str, Any]


def main() -> None:
    """Store every task that is there."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--report", type=Path, required=True)
    args = parser.parse_args()
    host = json.loads(args.report.read_text())
    with dataset(args.data, None, create=True) as database, CandidateCompiler() as compiler:
        for cell in sorted(args.folder.glob("*.json")):
            added, left_out = store(database, compiler, cell, host)
            print(f"{cell.stem}: {added} stored, {left_out} of other sketches", flush=True)


def store(database: Database, compiler: CandidateCompiler, cell: Path, host: Host) -> tuple[int, int]:
    """One task's trials on one target; a second time adds nothing."""
    known = json.loads(cell.read_text())
    task, target = task_of(known["task"]), parse_target(known["target"])
    program = Program(task.key, task.tir, task.args, task.flops)
    sketches = {sketch.key: sketch for sketch in compiler.design_space(program.tir, target.text)}
    trials = list(read_trials(cell.with_suffix(".jsonl")))
    ours = [trial for trial in trials if trial.candidate.sketch in sketches]
    with database.transaction() as session:
        new = new_workload(task, host["versions"]["apache-tvm"])
        workload_id = Workloads(session).ensure_many([new])[task.key]
        common = _common(session, target, host)
        common |= {"workload_id": workload_id, "created_at": cell.stat().st_mtime}
        added = ForeignRows(session).add(_rows(session, ours, sketches, common, cell.stem))
    return added, len(trials) - len(ours)


def _common(session: Session, target: Target, host: Host) -> dict[str, Any]:
    target_id = Targets(session).ensure(target).id
    facts = host["host"]["host_class"], host["versions"]["apache-tvm"], target.num_cores, EVALUATOR
    return {
        "kind": MeasurementKind.TRIAL.kind_after_import,
        "source_id": Sources(session).ensure(uuid5(NAMESPACE_URL, f"mallorn:oracle:{host['commit']}").hex),
        "target_id": target_id,
        "context_id": Contexts(session).ensure(target_id, *facts).id,
    }


def _rows(
    session: Session,
    trials: Sequence[Trial],
    sketches: Mapping[str, Sketch],
    common: Mapping[str, Any],
    cell: str,
) -> list[dict[str, Any]]:
    ids = store_sketches(session, [sketches[trial.candidate.sketch] for trial in trials])
    return [
        {**common, **_row(trial, f"{cell}:{number}"), "sketch_id": ids[trial.candidate.sketch]}
        for number, trial in enumerate(trials)
    ]


def _row(trial: Trial, name: str) -> dict[str, Any]:
    timed = trial.outcome is Outcome.OK
    return {
        "slot": 0,
        "outcome": trial.outcome,
        "origin": trial.origin.partition("/")[2] or trial.origin,
        "source_row": int.from_bytes(hashlib.sha256(name.encode()).digest()[:ROW_BYTES]),
        "decisions": pack_decisions(trial.candidate.decisions),
        "latency_us": trial.time_us if timed else None,
        "run_us": pack_times(trial.run_us) if timed else None,
    }


if __name__ == "__main__":
    main()
