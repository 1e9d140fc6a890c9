# ruff: noqa: E501 - statements as one reads them; of our own words
"""What planning, sweeping, proposing and training read as tables grow: `python -m benchmarks.growing_tables`.

Fills a Postgres of its own with a thousandth, a tenth and the whole of `--rows` measurements,
half of them of the workloads of one job, beside thousands of other tuning jobs of its target.
After each it prints milliseconds, and the 8 KiB blocks that the server touched for the
queries: these do not depend on the machine, and must be level or grow with a logarithm.
"""

import argparse
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from sqlalchemy import event, text
from sqlalchemy.orm import Session

from benchmarks.hosts import describe_host
from benchmarks.postgres import Postgres
from mallorn.core.job_options import JobOptions
from mallorn.core.states import JobState
from mallorn.core.targets import parse_target
from mallorn.core.values.candidate import Candidate, Sketch
from mallorn.core.values.decision_log import PlannedRound
from mallorn.core.values.fleet import WorkerInfo
from mallorn.db.measurement_codec import pack_times
from mallorn.db.migrate import upgrade
from mallorn.db.repositories.devices import Devices, SeenDevice
from mallorn.db.repositories.fair_shares import FairShares
from mallorn.db.repositories.jobs import Jobs, NewJob
from mallorn.db.repositories.learning_curves import LearningCurves
from mallorn.db.repositories.measuring_contexts import Contexts
from mallorn.db.repositories.rounds import Rounds
from mallorn.db.repositories.stored_files import Models
from mallorn.db.repositories.targets import Targets
from mallorn.db.repositories.tasks import NewTask, TaskHistories, Tasks
from mallorn.db.repositories.trials import Trials
from mallorn.db.repositories.workers import Workers
from mallorn.db.repositories.workloads import NewSketch, NewWorkload, Sketches, Workloads
from mallorn.db.session import Database
from mallorn.services.planner.fair_share import JobShare, charge_job, distribute_rounds
from mallorn.workers.process.heartbeat import ENOUGH_SEC
from mallorn.workers.round.train_cost_model import MOST_ROWS

FAMILY: Final = "operator:matmul"
ROUND_SIZE: Final = 16
SLOTS: Final = 41
DEVICES: Final = 200
CHUNK: Final = 20_000  # rounds in one statement
REPEATS: Final = 5
FRACTIONS: Final = (1000, 10, 1)

_JOBS: Final = """
INSERT INTO jobs SELECT (jsonb_populate_record(j, jsonb_build_object(
  'id', substr(md5(n::text), 1, 16), 'owner', 'owner' || n % 20, 'planned_at', extract(epoch from now()) - 60))).*
FROM jobs j, generate_series(2, :jobs) n WHERE j.id = :job"""
_TASKS: Final = """
INSERT INTO tasks (job_id, index, name, weight, workload_id, family, family_why, family_since, known_at_start, retired)
SELECT j.id, i, 'task', 1, :first + (abs(hashtext(j.id)) + i * 37) % :workloads, :family, '', 0, 0, ''
FROM jobs j, generate_series(0, 3) i WHERE j.id NOT IN (:job, :other)"""
# Every second round is of the job's own workloads, every tenth of these the job's own.
_ROUNDS: Final = """
INSERT INTO rounds (job_id, task_id, workload_id, target_id, index, size, seed, searcher, seen_upto, reason, state,
                    error, created_at, started_at, finished_at)
SELECT t.job_id, t.id, r.workload, 1, r.n, :size, 0, 'random', 0, '{}', 'done', '', r.at, r.at, r.at + 8
FROM (SELECT n, extract(epoch from now()) - 86400 * 365 + n AS at, n % 20 = 0 AS is_own,
        :first + CASE WHEN n % 2 = 0 THEN (n / 2) % :tasks ELSE (n / 2) % :workloads END AS workload
      FROM generate_series(CAST(:low AS bigint), CAST(:high AS bigint)) n) r
JOIN LATERAL (SELECT t.id, t.job_id FROM tasks t WHERE t.job_id = CASE WHEN r.is_own THEN :job ELSE :other END
              ORDER BY t.id LIMIT 1) t ON true"""
_MEASUREMENTS: Final = """
INSERT INTO measurements (job_id, round_id, slot, kind, workload_id, target_id, context_id, sketch_id, decisions,
                          outcome, latency_us, run_us, origin, created_at)
SELECT r.job_id, r.id, s, 'trial', r.workload_id, 1, :context, :sketch, convert_to(md5(r.id || 'x' || s), 'UTF8'),
       'ok', 10 + random() * 90, CAST(:times AS bytea), 'random', r.finished_at
FROM rounds r, generate_series(0, r.size - 1) s WHERE r.index BETWEEN :low AND :high AND r.state = 'done'"""


@dataclass(frozen=True, slots=True)
class Scale:
    """How many jobs tune, how many workloads there are, and how many of them the studied job has."""

    jobs: int = 5_000
    workloads: int = 2_000
    tasks: int = 50


@dataclass(frozen=True, slots=True)
class Cost:
    milliseconds: float
    blocks: int


class GrowingTables:
    """A database with a job to study, other jobs, and any number of measurements."""

    def __init__(self, database: Database, scale: Scale) -> None:
        self._database, self._scale, self._rounds = database, scale, 0
        with database.transaction() as session:
            self._prepare(session)

    def _prepare(self, session: Session) -> None:
        scale, model = self._scale, "a" * 64
        self._target_id = Targets(session).ensure(parse_target('{"kind":"llvm","num-cores":2}')).id
        self._context_id = Contexts(session).ensure(self._target_id, "host", "0.27.0", 2, {}).id
        new = NewSketch(Sketch("sketch", "[]", ()), "tvm/1", "0.27.0")
        self._sketch_id = Sketches(session).ensure_many([new])["sketch"]
        Models(session).add(model, "ada", "model", 1)
        keys = [f"w{number:05}" for number in range(scale.workloads)]
        workloads = [
            NewWorkload(key, key, "matmul", "s0", 1e6, "{}", {"args": []}, {"extents": [64]}, "0.27.0")
            for key in keys
        ]
        ids = Workloads(session).ensure_many(workloads)
        self._first_id = ids[keys[0]]
        options = JobOptions().model_dump(mode="json")
        names = keys[: scale.tasks]
        tasks = [NewTask(at, key, 1, ids[key], FAMILY) for at, key in enumerate(names)]
        jobs = Jobs(session)
        self._job_id, self._other_id = (
            jobs.create(NewJob("ada", name, model, self._target_id, 10**6, None, 0, options))[0].id
            for name in ("studied", "earlier")
        )
        for job_id in (self._job_id, self._other_id):
            Tasks(session).add_many(job_id, tasks)
            jobs.move_to_state(job_id, [JobState.QUEUED], JobState.TUNING)
            jobs.bind_context(job_id, self._context_id)
        FairShares(session).take_turn(self._job_id, 1.0, 1.0, wants_rounds=True)
        session.execute(text(_JOBS), {"jobs": scale.jobs, "job": self._job_id})
        place = {"first": self._first_id, "workloads": scale.workloads, "family": FAMILY}
        session.execute(text(_TASKS), place | {"job": self._job_id, "other": self._other_id})
        jobs.move_to_state(self._other_id, [JobState.TUNING], JobState.DONE)
        self._devices = [
            SeenDevice(f"d{number:03}", self._target_id, "host", "host", 2, "0.27.0")
            for number in range(DEVICES)
        ]
        Devices(session).record_all_seen(self._devices)
        Workers(session).record_seen("w", "host", WorkerInfo(can_tune=True))

    def grow(self, rows: int) -> None:
        """Add rounds until there are about `rows` measurements, and settle all but one round."""
        rounds = rows // ROUND_SIZE
        place = {"first": self._first_id, "tasks": self._scale.tasks, "workloads": self._scale.workloads}
        jobs = {"job": self._job_id, "other": self._other_id}
        for low in range(self._rounds, rounds, CHUNK):
            part = {"low": low, "high": min(low + CHUNK, rounds) - 1}
            with self._database.transaction() as session:
                session.execute(text(_ROUNDS), {"size": ROUND_SIZE, **part, **place, **jobs})
                context = {"context": self._context_id, "sketch": self._sketch_id}
                times = {"times": pack_times((10.0, 11.0, 12.0))}
                session.execute(text(_MEASUREMENTS), part | context | times)
        self._rounds = max(rounds, self._rounds)
        with self._database.transaction() as session:
            LearningCurves(session).settle(Jobs(session).get(self._job_id, None))
            # As plans of other jobs leave the rest; the studied job's newest round has just closed.
            session.execute(text("UPDATE rounds SET settled = true WHERE NOT settled"))
            newest = "SELECT max(id) FROM rounds WHERE job_id = :job"
            just_closed = f"UPDATE rounds SET settled = false WHERE id = ({newest})"
            session.execute(text(just_closed), {"job": self._job_id})
            Devices(session).record_all_seen(self._devices)
        engine = self._database.engine.execution_options(isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(text("VACUUM ANALYZE"))

    def costs(self) -> dict[str, Cost]:
        return {name: self._cost(read) for name, read in self._reads().items()}

    def _reads(self) -> Mapping[str, Callable[[Session], object]]:
        on = self._first_id, self._target_id
        asked = frozenset(Candidate("sketch", (number,)) for number in range(64))

        def job(session: Session) -> Any:
            return Jobs(session).get(self._job_id, None)

        def share(session: Session) -> None:
            claims, _ = FairShares(session).claims(self._target_id)
            jobs = [
                JobShare(one.id, one.owner, one.priority, one.share_pass, one.owner_pass) for one in claims
            ]
            distribute_rounds(jobs, {one.id for one in claims if one.able}, SLOTS)
            charge_job(jobs, self._job_id, ROUND_SIZE)

        def add_round(session: Session) -> object:
            task = Tasks(session).list(self._job_id)[0]
            planned = PlannedRound(
                task.id, FairShares(session).job_to_plan(self._job_id).next_index, ROUND_SIZE, seed=1
            )
            return Rounds(session).add(job(session), task.workload_id, planned, "random")

        return {
            "a plan reads a job's tasks": lambda s: TaskHistories(s).of(job(s)),
            "a closed round is settled": lambda s: LearningCurves(s).settle(job(s)),
            "a job without news is looked at": lambda s: FairShares(s).job_to_plan(self._job_id),
            "a round is planned": add_round,
            "the sweep looks for news": lambda s: FairShares(s).list_jobs_to_plan(4),
            "fair shares": share,
            "a heartbeat reports devices": lambda s: Devices(s).record_all_seen(self._devices, ENOUGH_SEC),
            "a round reads its history": lambda s: Trials(s, job(s)).history(*on, None, self._context_id),
            "64 candidates are looked up": lambda s: Trials(s, job(s)).history(
                *on, None, self._context_id, candidates=asked
            ),
            "a refit is due": lambda s: Trials(s, job(s)).count_new_family_rows(
                FAMILY, self._target_id, MOST_ROWS
            ),
            "a refit reads rows": lambda s: Trials(s, job(s)).read_family_columns(
                FAMILY, self._target_id, MOST_ROWS
            ),
        }

    def _cost(self, read: Callable[[Session], object]) -> Cost:
        """Run a read a few times, and explain its queries; nothing that it writes stays."""
        times: list[float] = []
        for _ in range(REPEATS):
            with self._rolled_back() as session:
                start = time.perf_counter()
                read(session)
                times.append(1000 * (time.perf_counter() - start))
        return Cost(median(times), self._blocks(read))

    def _blocks(self, read: Callable[[Session], object]) -> int:
        queries: list[tuple[str, Any]] = []

        def remember(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
            if statement.lstrip().startswith(("SELECT", "WITH")):
                queries.append((statement, parameters))

        engine = self._database.engine
        event.listen(engine, "before_cursor_execute", remember)
        with self._rolled_back() as session:
            read(session)
        event.remove(engine, "before_cursor_execute", remember)
        with self._rolled_back() as session:
            return sum(blocks_of(session, query, parameters) for query, parameters in queries)

    @contextmanager
    def _rolled_back(self) -> Iterator[Session]:
        class Undone(Exception):
            pass

        try:
            with self._database.transaction() as session:
                yield session
                raise Undone
        except Undone:
            return


def blocks_of(session: Session, query: str, parameters: Any) -> int:
    """Return how many blocks Postgres touches for a query."""
    explained = session.connection().exec_driver_sql(
        f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {query}", parameters
    )
    plan = explained.scalar_one()[0]["Plan"]
    return int(plan["Shared Hit Blocks"]) + int(plan["Shared Read Blocks"])


def print_table(sizes: Sequence[int], tables: Sequence[Mapping[str, Cost]]) -> None:
    print("| cost | " + " | ".join(f"{size:,} rows: ms | blocks" for size in sizes) + " |")
    print("|---|" + "---:|---:|" * len(sizes))
    for name in tables[0]:
        cells = [f"{table[name].milliseconds:.1f} | {table[name].blocks:,}" for table in tables]
        print(f"| {name} | " + " | ".join(cells) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--jobs", type=int, default=5_000)
    arguments = parser.parse_args()
    print(describe_host())
    sizes = [arguments.rows // fraction for fraction in FRACTIONS]
    with Postgres() as server:
        url = server.url.replace("postgresql://", "postgresql+psycopg://", 1)
        upgrade(url)
        with Database(url, answer_sec=None) as database:
            tables = GrowingTables(database, Scale(jobs=arguments.jobs))
            costs = []
            for size in sizes:
                tables.grow(size)
                costs.append(tables.costs())
    print_table(sizes, costs)


if __name__ == "__main__":
    main()
