"""Fill a database with a job with very many tasks, in the middle of its tuning."""

from dataclasses import dataclass
from random import Random
from typing import Any, Final

from sqlalchemy import insert
from sqlalchemy.orm import Session

from mallorn.core.job_options import JobOptions
from mallorn.core.outcomes import Outcome
from mallorn.core.states import JobState, MeasurementKind, RoundState, WorkKind
from mallorn.core.targets import parse_target
from mallorn.core.values.candidate import Sketch
from mallorn.core.values.decision_log import RoundForecast, RoundNotes
from mallorn.db.measurement_codec import pack_decisions, pack_times
from mallorn.db.repositories.jobs import Jobs, NewJob
from mallorn.db.repositories.measuring_contexts import Contexts
from mallorn.db.repositories.stored_files import Models
from mallorn.db.repositories.targets import Targets
from mallorn.db.repositories.tasks import NewTask, Tasks
from mallorn.db.repositories.workloads import NewSketch, NewWorkload, Sketches, Workloads
from mallorn.db.session import Database
from mallorn.db.tables import LeaseRow, Measurement, Round

NAME: Final = "many-tasks.onnx"
OWNER: Final = "local"
MODEL: Final = "b" * 64
TARGET: Final = '{"kind":"llvm","mcpu":"znver5","num-cores":16}'
OPERATORS: Final = ("conv2d", "matmul", "softmax", "layer_norm", "batch_matmul", "pool2d")
A_ROUND: Final = 8
ROUND_SEC: Final = 4.0
VISITS: Final = 4  # rounds of each measured task
FAILED: Final = 0.05
GAIN: Final = 0.8  # best of a round over that of the task's round before


@dataclass(frozen=True, slots=True)
class Place:
    """Ids and start time that all rows of the job share."""

    job_id: str
    target_id: int
    context_id: int
    sketch_id: int
    start_sec: float


def fill(database: Database, tasks: int, rounds: int, seed: int) -> str:
    """Store a tuning job with finished rounds, four per measured task; return its id."""
    random = Random(seed)
    with database.transaction() as session:
        place, workloads = _job(session, tasks, random)
    with database.transaction() as session:
        ids = [task.id for task in Tasks(session).list(place.job_id)]
        measured = min(tasks, max(1, rounds // VISITS))
        for index in range(rounds):
            at = index % measured
            best_us = (20 + 1980 * at / measured) * GAIN ** (index // measured)
            _round(session, random, place, index, {"task_id": ids[at], "workload_id": workloads[at]}, best_us)
    return place.job_id


def _job(session: Session, tasks: int, random: Random) -> tuple[Place, list[int]]:
    target = Targets(session).ensure(parse_target(TARGET)).id
    Models(session).add(MODEL, OWNER, NAME, 10)
    options = JobOptions().model_dump(mode="json")
    job = Jobs(session).create(NewJob(OWNER, NAME, MODEL, target, 8 * tasks, None, 0, options))[0]
    context = Contexts(session).ensure(target, "epyc", "0.27.0", 16, {"number": 3}).id
    sketch = Sketches(session).ensure_many([NewSketch(Sketch("s", "[]", ()), "tvm/1", "0.27.0")])["s"]
    names = [(f"{nr:064x}", random.choice(OPERATORS)) for nr in range(tasks)]
    ids = Workloads(session).ensure_many([_workload(nr, *name, random) for nr, name in enumerate(names)])
    rows = [
        NewTask(nr, f"fused_{op}_{nr}", random.randint(1, 12), ids[key], f"operator:{op}")
        for nr, (key, op) in enumerate(names)
    ]
    Tasks(session).add_many(job.id, rows)
    Jobs(session).move_to_state(job.id, [JobState.QUEUED], JobState.TUNING)
    return Place(job.id, target, context, sketch, job.created_at), [ids[key] for key, _ in names]


def _workload(nr: int, key: str, op: str, random: Random) -> NewWorkload:
    work = random.uniform(1e6, 1e9)
    return NewWorkload(key, f"fused_{op}_{nr}", op, f"s{nr % 40}", work, "{}", {"args": []}, {}, "0.27.0")


def _round(
    session: Session, random: Random, place: Place, index: int, ids: dict[str, int], best_us: float
) -> None:
    begin_sec = place.start_sec + ROUND_SEC * index
    began = dict.fromkeys(("created_at", "started_at"), begin_sec)
    expected = RoundForecast(expected_us=best_us, low_us=0.8 * best_us, high_us=1.4 * best_us, gain_us=10.0)
    row = {
        **ids,
        **began,
        "finished_at": begin_sec + ROUND_SEC,
        "job_id": place.job_id,
        "target_id": place.target_id,
        "index": index,
        "size": A_ROUND,
        "seed": 0,
        "searcher": "evolutionary",
        "seen_upto": A_ROUND * index,  # measurements are numbered from 1
        "reason": RoundNotes(policy="dynatune", why="it promises most of what it takes", forecast=expected),
        "state": RoundState.DONE,
        "worker": "worker-1",
        "error": "",
    }
    round_id = session.scalars(insert(Round).values(row).returning(Round.id)).one()
    hold = {
        "kind": WorkKind.ROUND,
        "subject": str(round_id),
        "job_id": place.job_id,
        "attempt": 1,
        "losses": 0,
    }
    session.execute(insert(LeaseRow).values(hold))
    common = {
        "job_id": place.job_id,
        "round_id": round_id,
        "workload_id": ids["workload_id"],
        "target_id": place.target_id,
        "context_id": place.context_id,
        "sketch_id": place.sketch_id,
        "kind": MeasurementKind.TRIAL,
        "origin": "evolutionary",
        "created_at": begin_sec + ROUND_SEC,
    }
    trials = [common | _trial(random, index, slot, best_us) for slot in range(A_ROUND)]
    session.execute(insert(Measurement), trials)


def _trial(random: Random, index: int, slot: int, best_us: float) -> dict[str, Any]:
    failed = slot > 0 and random.random() < FAILED
    time_us = best_us * (1 + 0.3 * slot * random.random())
    return {
        "slot": slot,
        "decisions": pack_decisions((slot, index)),
        "outcome": Outcome.BUILD_ERROR if failed else Outcome.OK,
        "latency_us": None if failed else time_us,
        "run_us": None if failed else pack_times((time_us,)),
    }
