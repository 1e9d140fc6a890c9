"""Jobs on a quiet host and next to other programs: effects on times, reports and results.

python -m benchmarks.disturbed [MODEL.onnx] [--trials 64] [--rows NAME ...] [--json FILE]

A row is a job with default options on a new data directory, and on another one a job of random
candidates, which are the same in all rows. Candidates measured both in a row and in the quiet
row are compared. The default job's result is timed in turn with the quiet job's, on the quiet
host; and a second job on its data, also in quiet, shows which candidates are measured again.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

from sqlalchemy import select

from benchmarks.disturbers import COMPANY
from benchmarks.hosts import describe_host
from mallorn.core.errors import Unavailable
from mallorn.core.states import MeasurementKind
from mallorn.core.values.disturbance import Disturbance
from mallorn.db.repositories.rounds import Rounds
from mallorn.db.session import Database
from mallorn.db.tables import Job, Measurement, SketchRow, Workload

EXAMPLE: Final = Path("build/models/mlp.onnx")
QUIET: Final = "quiet"
BENCHES: Final = 3
Key = tuple[str, str, bytes]
# Options of the jobs whose candidates do not depend on any measured time.
SAME: Final = ("--search", "random", "--policy", "round-robin", "--seed", "1")


@dataclass(frozen=True, slots=True)
class Timed:
    """Latency or upper bound of a job's candidate, and its disturbed share of time."""

    latency_us: float | None
    bound_us: float | None
    disturbed: float | None


@dataclass(frozen=True, slots=True)
class Row:
    """Figures of the jobs next to one kind of other programs."""

    name: str
    trials: int  # of both jobs
    marked: float  # share of trials that are upper bounds
    shared: int  # candidates timed here and in quiet, neither time a bound
    ratio: float | None  # median of their times over the quiet ones
    within: float | None  # share of these ratios up to 1.10
    worst: float | None
    ratios: tuple[float, ...]
    sec_a_trial: float
    lost_share: float  # share of timing seconds that were discarded
    sentence: str
    result: float | None  # model latency over the quiet job's, in quiet
    again: int  # candidates that the second job measured again
    again_unmarked: int


def main() -> None:
    """Measure all rows and print the headline."""
    options = _arguments()
    rows: list[Row] = []
    with TemporaryDirectory(prefix="mallorn-disturbed-") as scratch:
        quiet: list[dict[Key, Timed]] = []
        for name in [QUIET, *(each for each in options.rows if each != QUIET)]:
            try:
                rows.append(measured(name, options.model, options.trials, Path(scratch), quiet))
            except Unavailable as error:
                print(f"{name}: left out: {error.message}", flush=True)
                continue
            print(json.dumps(asdict(rows[-1])), flush=True)
    summary = headline(rows)
    if options.json:
        raw = {"headline": summary, "model": options.model.name, "trials": options.trials}
        content = raw | {"rows": [asdict(row) for row in rows]} | describe_host()
        options.json.write_text(json.dumps(content, indent=1) + "\n")
    print(summary)


def headline(rows: Sequence[Row]) -> str:
    """Return the largest ratio of an unmarked time to its quiet one, over all rows."""
    worst = max((row.worst for row in rows if row.worst is not None), default=None)
    return "nothing was compared" if worst is None else f"worst unmarked time over its quiet one: {worst:.2f}"


def measured(name: str, model: Path, trials: int, scratch: Path, quiet: list[dict[Key, Timed]]) -> Row:
    """Run a row's jobs, then compare in quiet. Raises Unavailable if its load cannot run."""
    folder = scratch / name.replace(" ", "-")
    same = folder.with_name(f"{folder.name}-same")
    with COMPANY[name]():
        _mallorn(folder, "tune", str(model), "--trials", str(trials), "--out", str(folder / "tuned"))
        _mallorn(same, "tune", str(model), "--trials", str(trials), *SAME, "--out", str(same / "tuned"))
    job_id, found = _trials(folder)
    jobs = [found, _trials(same)[1]]
    report, sec = _report(folder, job_id)
    if name == QUIET:
        quiet += jobs
    result = None if name == QUIET else _result(model, scratch / QUIET / "tuned", folder / "tuned")
    _mallorn(folder, "tune", str(model), "--trials", str(trials // 2), "--out", str(folder / "again"))
    second = _trials(folder)[1]
    return Row(
        name=name,
        sec_a_trial=sec / max(1, len(found)),
        result=result,
        **_compare(jobs, quiet),
        **report,
        again=len(second.keys() & found.keys()),
        again_unmarked=sum(found[key].latency_us is not None for key in second.keys() & found.keys()),
    )


def _compare(jobs: Sequence[Mapping[Key, Timed]], quiet: Sequence[Mapping[Key, Timed]]) -> dict[str, Any]:
    """Compare each job's times with those of the quiet job with the same options."""
    ratios = [
        time.latency_us / calm.latency_us
        for ours, others in zip(jobs, quiet, strict=True)
        for key, time in ours.items()
        if time.latency_us and (calm := others.get(key)) is not None and calm.latency_us
    ]
    timed = [each for ours in jobs for each in ours.values()]
    return {
        "trials": len(timed),
        "marked": sum(each.bound_us is not None for each in timed) / max(1, len(timed)),
        "shared": len(ratios),
        "ratio": median(ratios) if ratios else None,
        "within": sum(ratio <= 1.1 for ratio in ratios) / len(ratios) if ratios else None,
        "worst": max(ratios, default=None),
        "ratios": tuple(round(ratio, 4) for ratio in sorted(ratios)),
    }


def _trials(folder: Path) -> tuple[str, dict[Key, Timed]]:
    """Return the id of a data directory's newest job and its trials by candidate."""
    database = Database(f"sqlite:///{folder / 'data' / 'mallorn.db'}")
    with database.session() as session:
        job_id = session.scalars(select(Job.id).order_by(Job.created_at.desc()).limit(1)).one()
        table = Measurement
        query = (
            select(
                Workload.key,
                SketchRow.key,
                table.decisions,
                table.latency_us,
                table.bound_us,
                table.disturbed,
            )
            .join(Workload, Workload.id == table.workload_id)
            .join(SketchRow, SketchRow.id == table.sketch_id)
            .where(table.job_id == job_id, table.kind == MeasurementKind.TRIAL)
        )
        trials = {
            (workload, sketch, decisions): Timed(*times)
            for workload, sketch, decisions, *times in session.execute(query)
        }
    database.dispose()
    return job_id, trials


def _report(folder: Path, job_id: str) -> tuple[dict[str, Any], float]:
    """Return the job's note on its host, its lost share, and the seconds of its rounds."""
    database = Database(f"sqlite:///{folder / 'data' / 'mallorn.db'}")
    with database.session() as session:
        stats = Rounds(session).stats(job_id)
        report = session.get_one(Job, job_id).report
    database.dispose()
    all_of_it = Disturbance.of_all(each.disturbance for each in stats if each.disturbance is not None)
    total = all_of_it.valid_sec + all_of_it.repeated_sec
    note = report.conditions.note if report is not None and report.conditions is not None else ""
    sec = sum(each.propose_sec + each.measure_sec for each in stats)
    return {"lost_share": all_of_it.repeated_sec / total if total else 0.0, "sentence": note}, sec


def _result(model: Path, quiet: Path, ours: Path) -> float:
    """Return the model's latency with `ours` over that with `quiet`, timed in turn."""
    ratios = []
    for _ in range(BENCHES):
        theirs_us, ours_us = (_bench(model, schedules) for schedules in (quiet, ours))
        ratios.append(ours_us / theirs_us)
    return median(ratios)


def _bench(model: Path, schedules: Path) -> float:
    output = _mallorn(schedules.parent, "bench", str(model), "--schedules", str(schedules), "--json")
    median_us: float = json.loads(output)["latency_us"]["tuned"]["median"]
    return median_us


def _mallorn(folder: Path, *command: str) -> str:
    """Run the CLI on the folder's data directory. Raises CalledProcessError on failure."""
    folder.mkdir(exist_ok=True)
    env = os.environ | {"MALLORN_DATA_DIR": str(folder / "data")}
    process = subprocess.run(
        [sys.executable, "-m", "mallorn", *command], env=env, stdout=subprocess.PIPE, text=True, check=True
    )
    return process.stdout


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", type=Path, nargs="?", default=EXAMPLE)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--rows", nargs="+", choices=list(COMPANY), default=list(COMPANY))
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
