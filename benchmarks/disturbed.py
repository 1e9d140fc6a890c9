"""One job on a quiet host, then the same beside other programs: what is stored, said, and lost by it.

python -m benchmarks.disturbed [MODEL.onnx] [--trials 64] [--rows NAME ...] [--json FILE]

Every row is a job with the defaults on a data directory of its own, and on another one a job of random
candidates, which are the same in all rows. Candidates that they and the quiet ones both measured are
compared; the first one's result is timed in quiet, in turn with the quiet job's; and a second job on the
same data, in quiet, says what is measured again.
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
from db.repositories.rounds import Rounds
from db.session import Database
from db.tables import Job, Measurement, SketchRow, Workload
from mallorn.core.errors import Unavailable
from mallorn.core.states import MeasurementKind
from mallorn.core.values.disturbance import Disturbance

EXAMPLE: Final = Path("build/models/mlp.onnx")
QUIET: Final = "quiet"
BENCHES: Final = 3
Key = tuple[str, str, bytes]
# Whose candidates depend on no time.
SAME: Final = ("--search", "random", "--policy", "round-robin", "--seed", "1")


@dataclass(frozen=True, slots=True)
class Timed:
    """A candidate of a job."""

    latency_us: float | None
    bound_us: float | None
    disturbed: float | None


@dataclass(frozen=True, slots=True)
class Row:
    """One job beside others."""

    name: str
    trials: int  # of both jobs
    marked: float  # share of them that are bounds
    shared: int  # candidates that the quiet jobs timed, too, unmarked here
    ratio: float | None  # of their times to the quiet ones, in the median
    within: float | None  # share of them within 1.10
    worst: float | None
    ratios: tuple[float, ...]
    sec_a_trial: float
    lost_share: float  # of its timings, taken again
    sentence: str
    result: float | None  # of the model's latency to the quiet job's, timed in quiet in turn
    again: int  # candidates of this job that the second one measured again
    again_unmarked: int


def main() -> None:
    """Every row, one after the other."""
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
    said = headline(rows)
    if options.json:
        raw = {"headline": said, "model": options.model.name, "trials": options.trials}
        told = raw | {"rows": [asdict(row) for row in rows]} | describe_host()
        options.json.write_text(json.dumps(told, indent=1) + "\n")
    print(said)


def headline(rows: Sequence[Row]) -> str:
    """The unmarked time that is furthest from its quiet one, over all rows."""
    worst = max((row.worst for row in rows if row.worst is not None), default=None)
    return "nothing was compared" if worst is None else f"worst unmarked time over its quiet one: {worst:.2f}"


def measured(name: str, model: Path, trials: int, scratch: Path, quiet: list[dict[Key, Timed]]) -> Row:
    """Run a row's jobs, then what is asked of them in quiet. Raises Unavailable."""
    folder = scratch / name.replace(" ", "-")
    same = folder.with_name(f"{folder.name}-same")
    with COMPANY[name]():
        _mallorn(folder, "tune", str(model), "--trials", str(trials), "--out", str(folder / "tuned"))
        _mallorn(same, "tune", str(model), "--trials", str(trials), *SAME, "--out", str(same / "tuned"))
    job_id, found = _trials(folder)
    both = [found, _trials(same)[1]]
    told, sec = _told(folder, job_id)
    if name == QUIET:
        quiet += both
    result = None if name == QUIET else _result(model, scratch / QUIET / "tuned", folder / "tuned")
    _mallorn(folder, "tune", str(model), "--trials", str(trials // 2), "--out", str(folder / "again"))
    second = _trials(folder)[1]
    return Row(
        name=name,
        sec_a_trial=sec / max(1, len(found)),
        result=result,
        **_compared(both, quiet),
        **told,
        again=len(second.keys() & found.keys()),
        again_unmarked=sum(found[key].latency_us is not None for key in second.keys() & found.keys()),
    )


def _compared(found: Sequence[Mapping[Key, Timed]], quiet: Sequence[Mapping[Key, Timed]]) -> dict[str, Any]:
    """Of each job with the quiet one of its kind."""
    ratios = [
        mine.latency_us / theirs.latency_us
        for ours, others in zip(found, quiet, strict=True)
        for key, mine in ours.items()
        if mine.latency_us and (theirs := others.get(key)) is not None and theirs.latency_us
    ]
    timed = [each for ours in found for each in ours.values()]
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
    """The newest job of a data directory and its candidates."""
    database = Database(f"sqlite:///{folder / 'data' / 'mallorn.db'}")
    with database.session() as session:
        job_id = session.scalars(select(Job.id).order_by(Job.created_at.desc()).limit(1)).one()
        found = Measurement
        query = (
            select(
                Workload.key,
                SketchRow.key,
                found.decisions,
                found.latency_us,
                found.bound_us,
                found.disturbed,
            )
            .join(Workload, Workload.id == found.workload_id)
            .join(SketchRow, SketchRow.id == found.sketch_id)
            .where(found.job_id == job_id, found.kind == MeasurementKind.TRIAL)
        )
        trials = {
            (workload, sketch, decisions): Timed(*times)
            for workload, sketch, decisions, *times in session.execute(query)
        }
    database.dispose()
    return job_id, trials


def _told(folder: Path, job_id: str) -> tuple[dict[str, Any], float]:
    """What the job said of its host, and the seconds of its rounds."""
    database = Database(f"sqlite:///{folder / 'data' / 'mallorn.db'}")
    with database.session() as session:
        stats = Rounds(session).stats(job_id)
        report = session.get_one(Job, job_id).report
    database.dispose()
    all_of_it = Disturbance.of_all(each.disturbance for each in stats if each.disturbance is not None)
    whole = all_of_it.kept_sec + all_of_it.lost_sec
    note = report.conditions.note if report is not None and report.conditions is not None else ""
    sec = sum(each.propose_sec + each.measure_sec for each in stats)
    return {"lost_share": all_of_it.lost_sec / whole if whole else 0.0, "sentence": note}, sec


def _result(model: Path, quiet: Path, ours: Path) -> float:
    """The model with a row's schedules over that with the quiet job's, timed in turn, in quiet."""
    ratios = []
    for _ in range(BENCHES):
        theirs_us, ours_us = (_bench(model, schedules) for schedules in (quiet, ours))
        ratios.append(ours_us / theirs_us)
    return median(ratios)


def _bench(model: Path, schedules: Path) -> float:
    told = _mallorn(schedules.parent, "bench", str(model), "--schedules", str(schedules), "--json")
    median_us: float = json.loads(told)["latency_us"]["tuned"]["median"]
    return median_us


def _mallorn(folder: Path, *command: str) -> str:
    """A command of the CLI, with a data directory of the row's own. Raises CalledProcessError."""
    folder.mkdir(exist_ok=True)
    env = os.environ | {"MALLORN_DATA_DIR": str(folder / "data")}
    ended = subprocess.run(
        [sys.executable, "-m", "cli", *command], env=env, stdout=subprocess.PIPE, text=True, check=True
    )
    return ended.stdout


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", type=Path, nargs="?", default=EXAMPLE)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--rows", nargs="+", choices=list(COMPANY), default=list(COMPANY))
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
