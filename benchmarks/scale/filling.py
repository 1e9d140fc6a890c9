"""A database that a year has filled, whose workloads and history are those of the benchmark's jobs."""

from dataclasses import asdict
from typing import Final

import numpy as np
from sqlalchemy import delete, select, text, update
from sqlalchemy.orm import Session

from benchmarks.filled.rows import fill
from benchmarks.scale.devices import HOST_CLASS, THREADS, TVM_VERSION
from benchmarks.scale.rows import job_options
from mallorn.core.targets import Target, parse_target
from mallorn.db.measurement_codec import pack_decisions, pack_text
from mallorn.db.repositories.measuring_contexts import Contexts
from mallorn.db.repositories.targets import Targets
from mallorn.db.repositories.workloads import NewWorkload
from mallorn.db.session import Database
from mallorn.db.tables import Context, Workload
from mallorn.searchers.decision_space import SketchRules
from mallorn.workers.interfaces.candidate_compiler import CandidateCompiler
from mallorn.workers.round.store_referenced_rows import store_sketches

CANDIDATES: Final = 10_000
_SETTLED: Final = (
    "UPDATE jobs SET state = 'done', finished_at = created_at WHERE state NOT IN ('done', 'failed')",
    "UPDATE rounds SET state = 'done', finished_at = created_at, started_at = created_at "
    "WHERE state IN ('queued', 'leased')",
    "UPDATE held_work SET due_at = NULL WHERE due_at IS NOT NULL",
    "UPDATE devices SET last_seen = 0",
    "UPDATE workers SET last_seen = 0",
)
_CANDIDATES: Final = "CREATE TEMPORARY TABLE candidates (number int, sketch_id int, decisions bytea)"
# As far as there are candidates, no workload has one twice: the service measures none twice.
_CANDIDATE_OF_EACH: Final = """
UPDATE measurements m SET sketch_id = c.sketch_id, decisions = c.decisions
FROM candidates c, (SELECT id, row_number() OVER (PARTITION BY workload_id ORDER BY id) AS number
                    FROM measurements WHERE target_id = :target_id) r
WHERE c.number = r.number % :count AND m.id = r.id"""
_MOST_MEASURED: Final = """
SELECT workload_id FROM rounds WHERE target_id = :target_id GROUP BY workload_id
ORDER BY count(*) DESC, workload_id LIMIT :count"""


def fill_and_settle(database: Database, program: NewWorkload, targets: list[str], rows: int) -> None:
    """Fill a database with this many measurements, unless it holds some, and end all its jobs.

    Its workloads become `program`. Its measurements on `targets` become those of candidates
    of that program, timed as by the simulated devices, so that jobs of these workloads have
    the year's history.
    """
    with database.session() as session:
        is_filled = session.execute(text("SELECT 1 FROM measurements LIMIT 1")).first() is not None
    if not is_filled:
        fill(database, rows)
    with database.transaction() as session:
        for statement in _SETTLED:
            session.execute(text(statement))
        fields = asdict(program) | {"tir": pack_text(program.tir)}
        columns = {name: fields[name] for name in ("tir", "args", "features", "flops", "tvm_version")}
        session.execute(update(Workload).values(columns))
        for target in targets:
            target_id = Targets(session).ensure(parse_target(target)).id
            if _adopt_context(session, target_id):
                _adopt_candidates(session, program, target, target_id)
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE measurements"))


def _adopt_context(session: Session, target_id: int) -> bool:
    """Give the context of a target's measurements the identity of the simulated devices'
    context; return whether it had another."""
    (old_id,) = session.scalars(
        select(Context.id).where(Context.target_id == target_id).order_by(Context.id).limit(1)
    )
    timing = job_options(0, 0.0).timing(Target(Targets(session).get(target_id).text))
    new = Contexts(session).ensure(target_id, HOST_CLASS, TVM_VERSION, THREADS, timing)
    if new.id == old_id:
        return False
    columns = {
        name: getattr(new, name) for name in ("key", "host_class", "tvm_version", "threads", "evaluator")
    }
    session.execute(delete(Context).where(Context.id == new.id))
    session.execute(update(Context).where(Context.id == old_id).values(columns))
    return True


def _adopt_candidates(session: Session, program: NewWorkload, target: str, target_id: int) -> None:
    """Make each measurement on a target that of a candidate of the program's design space."""
    with CandidateCompiler(name="compiler") as compiler:
        sketches = compiler.design_space(program.tir, target)
    ids, rng = store_sketches(session, sketches), np.random.default_rng(0)
    session.execute(text(_CANDIDATES))
    rows = [
        {"sketch_id": ids[sketch.key], "decisions": pack_decisions(decisions)}
        for sketch in sketches
        for decisions in SketchRules(sketch).sample(rng, CANDIDATES // len(sketches)).tolist()
    ]
    numbered = [row | {"number": number} for number, row in enumerate(rows)]
    session.execute(text("INSERT INTO candidates VALUES (:number, :sketch_id, :decisions)"), numbered)
    session.execute(text(_CANDIDATE_OF_EACH), {"count": len(rows), "target_id": target_id})
    session.execute(text("DROP TABLE candidates"))


def most_measured_workloads(database: Database, target: str, count: int) -> list[int]:
    """Return the ids of the workloads with the most rounds on a target."""
    with database.transaction() as session:
        target_id = Targets(session).ensure(parse_target(target)).id
        return list(session.scalars(text(_MOST_MEASURED), {"target_id": target_id, "count": count}))
