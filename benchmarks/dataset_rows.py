"""Fill a large synthetic dataset with rows such as a service stores."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
from sqlalchemy import insert
from sqlalchemy.orm import Session

from mallorn.core.outcomes import Outcome
from mallorn.core.states import MeasurementKind, RoundState
from mallorn.core.targets import parse_target
from mallorn.core.values.candidate import Sketch
from mallorn.core.values.decision_log import RoundNotes
from mallorn.db.measurement_codec import pack_decisions, pack_times
from mallorn.db.repositories.jobs import Jobs, NewJob
from mallorn.db.repositories.measuring_contexts import Contexts
from mallorn.db.repositories.stored_files import Models
from mallorn.db.repositories.targets import Targets
from mallorn.db.repositories.tasks import NewTask, Tasks
from mallorn.db.repositories.workloads import NewSketch, NewWorkload, Sketches, Workloads
from mallorn.db.session import Database
from mallorn.db.tables import Measurement, Round, Schedule

OWNER: Final = "bench"
TARGETS: Final = tuple(f'{{"kind":"llvm","mcpu":"znver{each}","num-cores":16}}' for each in (3, 4, 5))
A_ROUND: Final = 16
A_WORKLOAD: Final = 5_000
A_SCHEDULE: Final = 500
SKETCHES: Final = 3  # per workload
RUNS: Final = 3
DECISIONS: Final = 28
FAILED: Final = 0.1
BATCH_ROUNDS: Final = 500
ERROR: Final = "RuntimeError: parallel for loop without independent iterations in block T_matmul_NT"


class Place(NamedTuple):
    """Ids and keys of a workload and a target to look up."""

    workload_id: int
    workload: str
    target_id: int
    target: str


class Filler:
    """Writes a dataset with `rows` measurements; the seed determines its content."""

    def __init__(self, database: Database, rows: int, seed: int) -> None:
        self._database = database
        self._rows = rows
        self._rng = np.random.default_rng(seed)
        self._workloads = max(1, rows // A_WORKLOAD)

    def prepare(self) -> None:
        """Store all rows that measurements refer to, except rounds."""
        with self._database.transaction() as session:
            self._targets = [Targets(session).ensure(parse_target(each)).id for each in TARGETS]
            self._contexts = {
                target: Contexts(session).ensure(target, "epyc", "0.27.0", 16, {"number": 3}).id
                for target in self._targets
            }
            self._ids = self._store_workloads(session)
            self._sketches = self._store_sketches(session)
            self._jobs = {target: self._store_job(session, target) for target in self._targets}

    def _store_workloads(self, session: Session) -> list[int]:
        keys = [_key(number) for number in range(self._workloads)]
        for start in range(0, len(keys), 1000):
            Workloads(session).ensure_many(
                [
                    NewWorkload(key, "fused_matmul", "matmul", "s0", 1e9, "{}", {"args": []}, {}, "0.27.0")
                    for key in keys[start : start + 1000]
                ]
            )
        return [Workloads(session).ids([key])[key] for key in keys]

    def _store_sketches(self, session: Session) -> list[int]:
        new = [
            NewSketch(Sketch(f"{number:016x}", "[]", (), number), "post-order-apply/1", "0.27.0")
            for number in range(SKETCHES * self._workloads)
        ]
        ids: dict[str, int] = {}
        for start in range(0, len(new), 1000):
            ids |= Sketches(session).ensure_many(new[start : start + 1000])
        return list(ids.values())

    def _store_job(self, session: Session, target: int) -> tuple[str, int]:
        model = "b" * 64
        Models(session).add(model, OWNER, "bench", 1)
        new = NewJob(
            owner=OWNER, name="bench", model_id=model, target_id=target, trials=self._rows, minutes=None,
            seed=0, options={},
        )  # fmt: skip
        job = Jobs(session).create(new)[0].id
        Tasks(session).add_many(job, [NewTask(0, "bench", 1, self._ids[0], "matmul")])
        return job, Tasks(session).list(job)[0].id

    def fill(self) -> None:
        """Store the rounds with their measurements, and a schedule per 500 measurements."""
        rounds = -(-self._rows // A_ROUND)
        for start in range(0, rounds, BATCH_ROUNDS):
            numbers = range(start, min(start + BATCH_ROUNDS, rounds))
            with self._database.transaction() as session:
                self._fill(session, numbers)

    def _fill(self, session: Session, numbers: range) -> None:
        connection = session.connection()
        rounds = [self._round(number) for number in numbers]
        connection.execute(insert(Round), rounds)
        rows = [row for each in rounds for row in self._measurements(each) if row["id"] <= self._rows]
        connection.execute(insert(Measurement), rows)
        best = [self._schedule(row) for row in rows if row["id"] % A_SCHEDULE == 0 and row["latency_us"]]
        if best:
            connection.execute(insert(Schedule), best)

    def _round(self, number: int) -> dict[str, Any]:
        target = self._targets[number % len(self._targets)]
        job, task = self._jobs[target]
        return {
            "id": number + 1, "job_id": job, "task_id": task, "target_id": target, "index": number,
            "workload_id": self._ids[int(self._rng.integers(len(self._ids)))], "size": A_ROUND, "seed": 0,
            "searcher": "ga", "seen_upto": 0, "reason": RoundNotes(), "state": RoundState.DONE, "error": "",
        }  # fmt: skip

    def _measurements(self, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        context = self._contexts[row["target_id"]]
        failures = self._rng.random(A_ROUND) < FAILED
        middles = 100 * np.exp(self._rng.normal(size=(A_ROUND, 1)))
        runs = middles * (1 + self._rng.random((A_ROUND, RUNS)) / 50)
        medians = np.median(runs, axis=1).tolist()
        decisions = self._rng.integers(1, 64, size=(A_ROUND, DECISIONS)).tolist()
        for slot, failed in enumerate(failures.tolist()):
            yield {
                "id": (row["id"] - 1) * A_ROUND + slot + 1, "job_id": row["job_id"], "round_id": row["id"],
                "slot": slot, "kind": MeasurementKind.TRIAL, "workload_id": row["workload_id"],
                "target_id": row["target_id"], "context_id": None if failed else context,
                "sketch_id": self._sketch_of(row["workload_id"]),
                "decisions": pack_decisions(decisions[slot]),
                "outcome": Outcome.BUILD_ERROR if failed else Outcome.OK,
                "latency_us": None if failed else medians[slot],
                "run_us": None if failed else pack_times(runs[slot].tolist()),
                "error": ERROR if failed else None, "build_ms": 310.5, "run_ms": None if failed else 120.25,
                "predicted": medians[slot] / 100, "origin": "ga",
            }  # fmt: skip

    def _sketch_of(self, workload: int) -> int:
        first = self._ids.index(workload) * SKETCHES
        return self._sketches[first + int(self._rng.integers(SKETCHES))]

    def _schedule(self, row: dict[str, Any]) -> dict[str, Any]:
        latency = row["latency_us"]
        return {
            "workload_id": row["workload_id"], "target_id": row["target_id"], "context_id": row["context_id"],
            "measurement_id": row["id"], "job_id": row["job_id"], "latency_us": latency, "low_us": latency,
            "high_us": latency, "max_error": 1e-6, "trace": b"\0" * 1500, "run_us": row["run_us"],
        }  # fmt: skip

    def places(self, count: int) -> list[Place]:
        """Return `count` random pairs of workload and target."""
        workloads = self._rng.integers(self._workloads, size=count).tolist()
        targets = self._rng.integers(len(TARGETS), size=count).tolist()
        return [
            Place(self._ids[work], _key(work), self._targets[on], parse_target(TARGETS[on]).key)
            for work, on in zip(workloads, targets, strict=True)
        ]


def _key(number: int) -> str:
    return f"{number:064x}"
