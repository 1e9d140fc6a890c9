"""What a planner's step, a sweep and the routes take while one owner has thousands of jobs that wait.

python -m benchmarks.filled.crowd [--jobs 10000] [--database URL] [--json FILE --label after]

On 200 devices of 20 targets with 40 workers; another owner has one job. Nothing is measured yet.
"""

import argparse
import json
import statistics
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from sqlalchemy import text

from benchmarks.filled.plans import listening
from benchmarks.filled.reads import ABILITY, OWNER, Act
from benchmarks.filled.rows import TARGETS, parts
from benchmarks.hosts import describe_host
from benchmarks.postgres import Postgres
from mallorn.core.targets import Target
from mallorn.db.migrate import upgrade
from mallorn.db.repositories.claim_and_release_work import WorkItems
from mallorn.db.repositories.devices import Devices
from mallorn.db.repositories.fair_shares import FairShares
from mallorn.db.repositories.job_progress import progress_of
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.targets import Targets
from mallorn.db.repositories.workers import Workers
from mallorn.db.session import Database
from mallorn.services.control.plan_target import plan_target, survey

REPEATS: Final = 5
TASKS: Final = 5
_JOBS: Final = f"""
INSERT INTO jobs SELECT (jsonb_populate_record(j, jsonb_build_object('id', substr(md5(n::text), 1, 16),
  'owner', CASE WHEN n = 2 THEN 'another' ELSE j.owner END, 'target_id', 1 + n % {TARGETS},
  'state', CASE WHEN n % 2 = 0 THEN 'tuning' ELSE 'queued' END))).*
FROM jobs j, generate_series(2, CAST(:jobs AS int)) n"""
_TASKS: Final = f"""
INSERT INTO tasks (job_id, index, name, weight, workload_id,
                   family, family_why, family_since, known_at_start, retired)
SELECT j.id, i, 'task ' || i, 1, 1 + abs(hashtext(j.id || i)) % 2000, 'operator:matmul', '', 0, 0, ''
FROM jobs j, generate_series(0, {TASKS - 1}) i WHERE j.state = 'tuning'"""
_HELD: Final = """
INSERT INTO held_work (kind, subject, job_id, attempt, losses, due_at)
SELECT 'import', id, id, 0, 0, 0 FROM jobs WHERE state = 'queued' ON CONFLICT DO NOTHING"""


def main() -> None:
    """Fill, ask, and say what the answers took."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--database", default="", help="an empty Postgres; default: one of its own")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--label", default="after")
    options = parser.parse_args()
    with ExitStack() as stack:
        url = options.database or stack.enter_context(Postgres()).url
        upgrade(url)
        database = Database(url)
        stack.callback(database.dispose)
        _fill(database, options.jobs)
        told: dict[str, Any] = {"jobs": options.jobs, "asked": _asked(database)}
    for name, figures in told["asked"].items():
        print(f"{name:24} {figures['ms']:9.1f} ms  {figures['statements']:6} statements")
    if options.json:
        kept = json.loads(options.json.read_text()) if options.json.exists() else {}
        options.json.write_text(json.dumps(kept | {options.label: told | describe_host()}, indent=1) + "\n")


def _fill(database: Database, jobs: int) -> None:
    with database.transaction() as session:
        parts(session)
        for statement in (_JOBS, _TASKS, _HELD):
            session.execute(text(statement), {"jobs": jobs} if statement is _JOBS else {})
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("ANALYZE"))


def _asked(database: Database) -> dict[str, dict[str, float]]:
    with database.session() as session:
        mine = Jobs(session).list(OWNER, limit=1).items[0].id
    reads: dict[str, Act] = {
        "survey": lambda s: survey(s, 1, Target(Targets(s).get(1).text)),
        "due": lambda s: FairShares(s).list_jobs_to_plan(4),
        "waiting": lambda s: WorkItems(s).has_waiting(ABILITY, 1.0),
        "a page of jobs": lambda s: progress_of(s, Jobs(s).list(OWNER).items),
        "devices": lambda s: Devices(s).list(),
        "workers": lambda s: Workers(s).list(86400),
    }
    return {name: _timed(database, act) for name, act in reads.items()} | {
        "a planner's step": _timed(database, lambda _: plan_target(database, mine, "crowd"), times=1)
    }


def _timed(database: Database, act: Act, times: int = REPEATS) -> dict[str, float]:
    took: list[float] = []
    with listening(database.engine) as heard:
        for _ in range(times):
            began_sec = time.perf_counter()
            with database.session() as session:
                act(session)
            took.append(1e3 * (time.perf_counter() - began_sec))
    return {"ms": round(statistics.median(took), 2), "statements": len(heard) / times}


if __name__ == "__main__":
    main()
