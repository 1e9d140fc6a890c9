"""A job with very many tasks, as a service would have left it in the middle of its tuning."""

from random import Random
from typing import Any, Final

from sqlalchemy import insert
from sqlalchemy.orm import Session

from db.codec import pack_decisions, pack_times
from db.repositories.contexts import Contexts
from db.repositories.jobs import Jobs, NewJob
from db.repositories.models import Models
from db.repositories.sketches import NewSketch, Sketches
from db.repositories.targets import Targets
from db.repositories.tasks import NewTask, Tasks
from db.repositories.workloads import NewWorkload, Workloads
from db.session import Database
from db.tables import Measurement, Round
from mallorn.core.options import JobOptions
from mallorn.core.outcomes import Outcome
from mallorn.core.states import JobState, MeasurementKind, RoundState
from mallorn.core.targets import parse_target

OWNER: Final = "local"
MODEL: Final = "b" * 64
TARGET: Final = '{"kind":"llvm","mcpu":"znver5","num-cores":16}'
OPERATORS: Final = ("conv2d", "matmul", "softmax", "layer_norm", "batch_matmul", "pool2d")
A_ROUND: Final = 8
ROUND_SEC: Final = 4.0
START_SEC: Final = 1_790_000_000.0


def fill(database: Database, tasks: int, rounds: int, seed: int) -> str:
    """Store a tuning job whose first `rounds` tasks were measured, a round each; its id."""
    random = Random(seed)
    with database.transaction() as session:
        job_id, workloads, place = _job(session, tasks, random)
    with database.session() as session:
        ids = [task.id for task in Tasks(session).list(job_id)]
    with database.transaction() as session:
        for number in range(rounds):
            owner = {"job_id": job_id, "task_id": ids[number % tasks], "index": number}
            _round(session, random, owner, place, workloads[number % tasks])
    return job_id


def _job(session: Session, tasks: int, random: Random) -> tuple[str, list[int], dict[str, int]]:
    target = Targets(session).ensure(parse_target(TARGET)).id
    Models(session).add(MODEL, OWNER, "ten-thousand.onnx", 10)
    place = {
        "target_id": target,
        "context_id": Contexts(session).ensure(target, "epyc", "0.27.0", 16, {"number": 3}).id,
        "sketch_id": Sketches(session).ensure_many([NewSketch("s", "[]", [], 0, "tvm/1", "0.27.0")])["s"],
    }
    new = NewJob(
        OWNER, "ten-thousand.onnx", MODEL, target, 8 * tasks, None, 0, JobOptions().model_dump(mode="json")
    )
    job_id = Jobs(session).create(new)[0].id
    operators = [random.choice(OPERATORS) for _ in range(tasks)]
    known = Workloads(session).ensure_many([_workload(at, op, random) for at, op in enumerate(operators)])
    workloads = [known[f"{at:064x}"] for at in range(tasks)]
    rows = [
        NewTask(at, f"fused_{op}_{at}", random.randint(1, 12), workloads[at], f"operator:{op}")
        for at, op in enumerate(operators)
    ]
    Tasks(session).add_many(job_id, rows)
    Jobs(session).move(job_id, [JobState.QUEUED], JobState.TUNING)
    return job_id, workloads, place


def _workload(at: int, op: str, random: Random) -> NewWorkload:
    flops = random.uniform(1e6, 1e9)
    return NewWorkload(
        f"{at:064x}", f"fused_{op}_{at}", op, f"s{at % 40}", flops, "{}", {"args": []}, {}, "0.27.0"
    )


def _round(
    session: Session, random: Random, ids: dict[str, Any], place: dict[str, int], workload: int
) -> None:
    started = START_SEC + ROUND_SEC * ids["index"]
    times = {
        "created_at": started,
        "sent_at": started,
        "started_at": started,
        "finished_at": started + ROUND_SEC,
    }
    best_us = random.uniform(20, 2000)
    forecast = {
        "expected_us": best_us,
        "low_us": best_us * 0.8,
        "high_us": best_us * 1.4,
        "gain_us": best_us * 0.1,
    }
    row = {
        **ids,
        **times,
        "workload_id": workload,
        "target_id": place["target_id"],
        "size": A_ROUND,
        "seed": 0,
        "searcher": "evolutionary",
        "seen_upto": 0,
        "reason": {"policy": "first-pass", "why": "no time of it is known yet", "forecast": forecast},
        "state": RoundState.DONE,
        "attempt": 1,
        "losses": 0,
        "worker": "worker-1",
        "error": "",
    }
    round_id = session.scalars(insert(Round).values(row).returning(Round.id)).one()
    session.execute(
        insert(Measurement),
        [_trial(random, ids, place, workload, round_id, slot, best_us) for slot in range(A_ROUND)],
    )


def _trial(
    random: Random,
    ids: dict[str, Any],
    place: dict[str, int],
    workload: int,
    round_id: int,
    slot: int,
    best_us: float,
) -> dict[str, Any]:
    failed = slot > 0 and random.random() < 0.05
    time_us = best_us * (1 + 0.3 * slot * random.random())
    return {
        **place,
        "job_id": ids["job_id"],
        "round_id": round_id,
        "workload_id": workload,
        "slot": slot,
        "kind": MeasurementKind.TRIAL,
        "decisions": pack_decisions((slot, ids["index"])),
        "outcome": Outcome.BUILD_ERROR if failed else Outcome.OK,
        "latency_us": None if failed else time_us,
        "run_us": None if failed else pack_times((time_us,)),
        "origin": "evolutionary",
        "created_at": START_SEC + ROUND_SEC * ids["index"],
    }
