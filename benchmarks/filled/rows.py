# ruff: noqa: E501 - statements as one reads them; of our own words
"""What a year of service leaves in Postgres, written fast: rows through one statement for a million of them.

3,000 jobs of 50 owners on 60 models of 50 tasks (2,000 workloads), 20 targets, 200 devices and 40 workers. The
nearer to the first a number is, the more there is of it. Jobs ran one after another, a few dozen at a time.
"""

import time
from typing import Final

from sqlalchemy import Connection, text
from sqlalchemy.orm import Session

from mallorn.core.job_options import JobOptions
from mallorn.core.targets import parse_target
from mallorn.core.values.candidate import Sketch
from mallorn.core.values.fleet import WorkerInfo
from mallorn.db.measurement_codec import pack_times
from mallorn.db.repositories.cost_models import CostModels, NewCostModel
from mallorn.db.repositories.devices import Devices, SeenDevice
from mallorn.db.repositories.jobs import Jobs, NewJob
from mallorn.db.repositories.measuring_contexts import Contexts
from mallorn.db.repositories.stored_files import Models
from mallorn.db.repositories.targets import Targets
from mallorn.db.repositories.workers import Workers
from mallorn.db.repositories.workloads import NewSketch, NewWorkload, Sketches, Workloads
from mallorn.db.session import Database

OWNER: Final = "local"  # who asks without a key; of the 50 the one with most
JOBS: Final = 3_000
VACUUM_SEC: Final = 300
TASKS: Final = 50
OWNERS: Final = 50
MODELS: Final = 60
WORKLOADS: Final = 2_000
SKETCHES: Final = 20_000
TARGETS: Final = 20
DEVICES: Final = 200
WORKERS: Final = 40
TUNING: Final = 200  # the newest jobs
ROUND_SIZE: Final = 8
CHUNK: Final = 50_000  # rounds in one statement
SOME: Final = 500  # as versions before could write at a time
OPS: Final = ("matmul", "conv2d", "softmax", "add", "pool", "norm", "gather", "dense", "attention", "reduce")

_JOBS: Final = f"""
INSERT INTO jobs SELECT (jsonb_populate_record(j, jsonb_build_object(
  'id', substr(md5(n::text), 1, 16), 'name', 'job ' || n,
  'owner', CASE floor({OWNERS} * power(random(), 2))::int
             WHEN 0 THEN '{OWNER}' ELSE 'owner' || floor({OWNERS} * power(random(), 2))::int END,
  'model_id', md5('model' || floor({MODELS} * power(random(), 2))::int),
  'target_id', 1 + (n * 7) % {TARGETS}, 'context_id', 1 + (n * 7) % {TARGETS},
  'state', CASE WHEN n > {JOBS - TUNING} THEN 'tuning' ELSE 'done' END,
  'created_at', extract(epoch from now()) - 86400.0 * 365 * ({JOBS} - n) / {JOBS},
  'planned_at', extract(epoch from now()),
  'finished_at', CASE WHEN n > {JOBS - TUNING} THEN NULL
    ELSE extract(epoch from now()) - 86400.0 * 365 * ({JOBS} - n - 40) / {JOBS} END))).*
FROM jobs j, generate_series(2, {JOBS}) n"""
_TASKS: Final = f"""
INSERT INTO tasks (job_id, index, name, weight, workload_id, family, family_why, family_since, known_at_start, retired)
SELECT j.id, i, 'task ' || i, 1 + i % 7, w.id, 'operator:' || w.op, '', 0, 0, ''
FROM (SELECT *, row_number() OVER (ORDER BY created_at) AS n FROM jobs) j, generate_series(0, {TASKS - 1}) i
JOIN LATERAL (SELECT 1 + (('x' || substr(j.model_id, 1, 6))::bit(24)::int + i * 37) % {WORKLOADS} AS id) k ON true
JOIN workloads w ON w.id = k.id ORDER BY j.n, i"""
_ROUNDS: Final = f"""
INSERT INTO rounds (id, job_id, task_id, workload_id, target_id, index, size, seed, searcher, seen_upto, reason,
                    state, worker, error, created_at, started_at, finished_at)
SELECT r.id, t.job_id, t.id, t.workload_id, j.target_id, r.id, {ROUND_SIZE}, 0, 'evolutionary',
       (r.id - 1) * {ROUND_SIZE}, '{{}}', 'done', 'worker' || r.id % {WORKERS}, '', r.at, r.at, r.at + 30
FROM (SELECT id, CAST(:began AS float8) + CAST(:length AS float8) * id / CAST(:rounds AS float8) AS at, 1 + {TASKS} * greatest(0, least({JOBS - 1},
        floor({JOBS} * (id / CAST(:rounds AS float8)) + 60 * (random() - 0.5))::int)) + floor({TASKS} * power(random(), 1.5))::int
        AS task FROM generate_series(CAST(:first AS bigint), CAST(:last AS bigint)) id OFFSET 0) r
JOIN tasks t ON t.id = r.task JOIN jobs j ON j.id = t.job_id ORDER BY r.id"""
_MEASUREMENTS: Final = f"""
INSERT INTO measurements (job_id, round_id, slot, kind, workload_id, target_id, context_id, sketch_id, decisions,
                          outcome, latency_us, run_us, error, device_id, build_ms, run_ms, predicted, origin, created_at)
SELECT r.job_id, r.id, s, 'trial', r.workload_id, r.target_id, CASE WHEN o.what <> 'build_error' THEN r.target_id END,
       1 + (r.workload_id * 10 + floor(10 * random())::int) % {SKETCHES}, convert_to(md5(random()::text), 'UTF8'),
       o.what, CASE WHEN o.what = 'ok' THEN (10 + r.workload_id % 97) * (1 + random()) END,
       CASE WHEN o.what = 'ok' THEN CAST(:times AS bytea) END, CASE WHEN o.what <> 'ok' THEN 'no' END,
       CASE WHEN o.what <> 'build_error' THEN r.target_id + {TARGETS} * floor({DEVICES // TARGETS} * power(random(), 2))::int END,
       200, 300, 0.5, 'evolutionary', r.finished_at
FROM rounds r, generate_series(0, {ROUND_SIZE - 1}) s, LATERAL (SELECT random() + 0 * s + 0 * r.id AS x) d,
     LATERAL (SELECT CASE WHEN x < 0.84 THEN 'ok' WHEN x < 0.95 THEN 'build_error'
                          WHEN x < 0.998 THEN 'run_error' ELSE 'wrong_result' END AS what) o
WHERE r.id BETWEEN :first AND :last ORDER BY r.id, s"""
_FINISHES: Final = """
INSERT INTO measurements (job_id, slot, kind, workload_id, target_id, context_id, sketch_id, decisions, outcome,
                          latency_us, run_us, device_id, build_ms, run_ms, origin, created_at)
SELECT job_id, 0, 'finish', workload_id, target_id, context_id, sketch_id, decisions, outcome, latency_us * 1.01,
       run_us, device_id, build_ms, run_ms, origin, created_at
FROM measurements WHERE round_id BETWEEN :first AND :last AND round_id % 6 = 0 AND slot = 0 AND outcome = 'ok'"""
_HELD: Final = """
INSERT INTO held_work (kind, subject, job_id, attempt, losses)
SELECT 'round', id::text, job_id, 1, 0 FROM rounds WHERE id BETWEEN :first AND :last"""
_EVENTS: Final = """
INSERT INTO events (job_id, seq, kind, payload, created_at)
SELECT job_id, index, 'measured', '{"round": 1, "task": 1, "name": "t", "trials": 8, "failed": 1}', finished_at
FROM rounds WHERE id BETWEEN :first AND :last"""
_SCHEDULES: Final = """
INSERT INTO schedules (workload_id, target_id, context_id, measurement_id, job_id, latency_us, low_us, high_us,
                       max_error, trace, run_us, created_at)
SELECT workload_id, target_id, context_id, id, job_id, latency_us, latency_us, latency_us, 0, '', run_us, created_at
FROM measurements WHERE kind = 'finish' AND outcome = 'ok' AND id % 4 = 0 LIMIT 100000"""
_IN_FLIGHT: Final = f"""
UPDATE rounds SET state = 'queued', finished_at = NULL, started_at = NULL, worker = NULL WHERE id IN (
  SELECT DISTINCT ON (r.workload_id, r.target_id) r.id FROM rounds r JOIN jobs j ON j.id = r.job_id
  WHERE j.state = 'tuning' AND r.id > (SELECT max(id) FROM rounds) - 20000 LIMIT {DEVICES})"""
_UNMARKED: Final = "SELECT relpages - relallvisible FROM pg_class WHERE oid = 'measurements'::regclass"
_MODELS: Final = """
INSERT INTO cost_models SELECT (jsonb_populate_record(c, jsonb_build_object('id', nextval('cost_models_id_seq'),
  'family', 'operator:' || op, 'target_id', t, 'version', v, 'active', v = 5, 'seen_upto', CAST(:rows AS bigint) * v / 5))).*
FROM cost_models c, generate_series(1, 20) t, generate_series(1, 5) v, unnest(CAST(:ops AS text[])) op"""


def fill(database: Database, rows: int) -> None:
    """Some hundred thousand rows a second, less where indexes no longer fit into memory."""
    with database.transaction() as session:
        parts(session)
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for setting in (
            "session_replication_role = replica",
            "maintenance_work_mem = '512MB'",
            "synchronous_commit = off",
        ):
            connection.execute(text(f"SET {setting}"))
        connection.execute(text("SELECT setseed(0.5)"))
        for statement in (_JOBS, _TASKS):
            connection.execute(text(statement))
        left_out = _without_indexes(connection)
        _grow(connection, rows)
        for definition in left_out:
            connection.execute(text(definition))
        connection.execute(text(_MODELS), {"ops": list(OPS), "rows": rows})
        connection.execute(
            text(
                "UPDATE jobs SET event_count = coalesce((SELECT max(seq) FROM events e WHERE e.job_id = jobs.id), 0)"
            )
        )
        for statement in (
            _SCHEDULES,
            _IN_FLIGHT,
            "SELECT setval('rounds_id_seq', (SELECT max(id) FROM rounds))",
        ):
            connection.execute(text(statement))
        _vacuum(connection)


def _vacuum(connection: Connection) -> None:
    """Vacuum until all pages of measurements are marked as visible to everybody. Another process's snapshot,
    as autovacuum's, keeps VACUUM from marking them, and unmarked pages change the plans of statements."""
    deadline = time.monotonic() + VACUUM_SEC
    while time.monotonic() < deadline:
        connection.execute(text("VACUUM ANALYZE"))
        if not connection.execute(text(_UNMARKED)).scalar_one():
            return
        time.sleep(0.2)
    raise TimeoutError(f"Postgres did not mark all pages of measurements as visible within {VACUUM_SEC} s")


def _grow(connection: Connection, rows: int) -> None:
    rounds, length = max(1, rows // ROUND_SIZE), 365 * 86400
    began: float = connection.execute(
        text("SELECT extract(epoch from now())::float8 - CAST(:length AS float8)"), {"length": length}
    ).scalar_one()
    for first in range(1, rounds + 1, CHUNK):
        last = min(rounds, first + CHUNK - 1)
        given = {"first": first, "last": last, "rounds": rounds, "began": began, "length": length}
        given["times"] = pack_times((10.0, 11.0, 12.0))
        for statement in (_ROUNDS, _MEASUREMENTS, _FINISHES, _HELD, _EVENTS):
            connection.execute(text(statement), given)
        print(f"\r{last * ROUND_SIZE:,} rows", end="", flush=True)
    print()


def _without_indexes(connection: Connection) -> list[str]:
    """Drops those of the large tables that no constraint needs; how they are made again."""
    found = connection.execute(
        text("""
        SELECT c.relname, pg_get_indexdef(i.indexrelid) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
        WHERE i.indrelid IN ('measurements'::regclass, 'rounds'::regclass) AND NOT i.indisprimary
          AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = c.oid)""")
    ).all()
    for name, _ in found:
        connection.execute(text(f'DROP INDEX "{name}"'))
    return [definition for _, definition in found]


def parts(session: Session) -> None:
    targets = [
        Targets(session).ensure(parse_target(f'{{"kind":"llvm","num-cores":{n + 1}}}')).id
        for n in range(TARGETS)
    ]
    for target in targets:
        Contexts(session).ensure(target, "host", "0.27.0", 2, {})
    for number in range(DEVICES):
        target = targets[number % TARGETS]
        Devices(session).record_seen(SeenDevice(f"device{number}", target, f"h{number}", "host", 2, "0.27.0"))
    for number in range(WORKERS):
        Workers(session).record_seen(f"worker{number}", f"h{number}", WorkerInfo())
    Models(session).add("a" * 64, OWNER, "model", 10)
    for first in range(0, WORKLOADS, SOME):
        Workloads(session).ensure_many([_workload(number) for number in range(first, first + SOME)])
    for first in range(0, SKETCHES, SOME):
        Sketches(session).ensure_many([_sketch(number) for number in range(first, first + SOME)])
    options = JobOptions().model_dump(mode="json")
    Jobs(session).create(NewJob(OWNER, "job 1", "a" * 64, targets[0], 10_000, None, 0, options))
    CostModels(session).add(NewCostModel("first", targets[0], "gbt", 0, 1000, {}, b"model" * 2000))


def _workload(number: int) -> NewWorkload:
    op = OPS[number % len(OPS)]
    return NewWorkload(
        f"w{number:05}",
        f"fused_{op}",
        op,
        f"s{number % 100}",
        1e6,
        "{}",
        {"args": []},
        {"extents": [64]},
        "0",
    )


def _sketch(number: int) -> NewSketch:
    return NewSketch(Sketch(f"sketch{number:05}", "[trace]", ()), "tvm/1", "0")
