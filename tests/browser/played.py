"""Writes recorded tunings as rows, as if they had run on this service at another time."""

from collections import Counter
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from sqlalchemy import func, insert, select, update
from sqlalchemy.orm import Session

from mallorn.core.job_options import JobOptions
from mallorn.core.outcomes import Outcome
from mallorn.core.states import JobState, MeasurementKind, RoundState, StageKind, WorkKind
from mallorn.core.targets import parse_target
from mallorn.core.values.candidate import Sketch
from mallorn.core.values.decision_log import RoundNotes
from mallorn.db.measurement_codec import pack_decisions, pack_times
from mallorn.db.repositories.cost_models import CostModels, NewCostModel
from mallorn.db.repositories.jobs import Jobs, NewJob
from mallorn.db.repositories.measuring_contexts import Contexts
from mallorn.db.repositories.stored_files import Models
from mallorn.db.repositories.targets import Targets
from mallorn.db.repositories.tasks import NewTask, Tasks
from mallorn.db.repositories.workloads import NewSketch, NewWorkload, Sketches, Workloads
from mallorn.db.tables import Job, LeaseRow, Measurement, Round, StageRun
from tests.browser.networks import network
from tests.browser.recorded import Recording

TVM: Final = "0.27.0"
BUILD_MS: Final = 240.0  # recordings say neither this
TRAINING_SEC: Final = 0.7  # nor this
GROWTH: Final = 1.2
MODEL_BYTES: Final = {"mlp": 2_143_771, "resnet18": 46_745_206, "bert-small": 44_035_912}
OWNER: Final = "local"


@dataclass(frozen=True, slots=True)
class Stage:
    """Where and when a tuning is played."""

    began_sec: float
    worker: str
    device_id: int
    owner: str = OWNER
    room: str = ""  # another name, another measuring context: what was known in the first is not known there
    rounds: int | None = None  # None: all of them
    failures: int = 0  # of every so many trials one did not build; 0: none, as recorded


class Player:
    """Plays one tuning into a session."""

    def __init__(self, session: Session, cell: Recording, stage: Stage) -> None:
        self.session = session
        self.cell = cell
        self.stage = stage
        self.network = network(cell.model)
        self.target_id = Targets(session).ensure(parse_target(cell.target)).id
        threads = int(cell.target["num-cores"])
        timing = JobOptions().timing(parse_target(cell.target))
        host_class = cell.host["host_class"] + stage.room
        self.context_id = Contexts(session).ensure(self.target_id, host_class, TVM, threads, timing).id
        self.workloads = Workloads(session).ensure_many([_workload(task) for task in self.network["tasks"]])
        names = sorted({trial["sketch"] for trials in cell.trials for trial in trials})
        self.sketches = Sketches(session).ensure_many(
            [NewSketch(Sketch(name, "[]", ()), "tvm/1", TVM) for name in names]
        )
        self.job = self._job()
        self.tasks = {task.index: task for task in Tasks(session).list(self.job.id)}
        self.learned: Counter[str] = Counter()

    def play(self) -> Job:
        """Write the rounds with their trials; the job is left tuning."""
        self.stage_run(StageKind.IMPORT, self.cell.submitted_sec, self.cell.rounds[0]["created_at"])
        played = zip(self.cell.rounds, self.cell.trials, strict=True)
        for number, (told, trials) in enumerate(played):
            if number == self.stage.rounds:
                break
            self._round(told, trials)
        self.session.flush()
        return self.job

    def at(self, clock_sec: float) -> float:
        """A moment of the recording on the stage's clock."""
        return clock_sec - self.cell.submitted_sec + self.stage.began_sec

    def stage_run(self, kind: StageKind, began_sec: float, ended_sec: float) -> None:
        """What the worker did between two moments of the recording."""
        times = {"started_at": self.at(began_sec), "finished_at": self.at(ended_sec)}
        self.session.add(StageRun(job_id=self.job.id, kind=kind, worker=self.stage.worker, **times))

    def leave_open(self, told: dict[str, Any], trials: list[dict[str, Any]], since_sec: float) -> None:
        """The next round, with so many of its trials measured."""
        fields = {"state": RoundState.LEASED, "finished_at": None, "stats": None}
        round_id = self._round(told, trials, **fields, started_at=since_sec)
        held = update(LeaseRow).where(LeaseRow.kind == WorkKind.ROUND, LeaseRow.subject == str(round_id))
        self.session.execute(held.values(until=since_sec + 86_400))

    def _job(self) -> Job:
        cell, stage = self.cell, self.stage
        model_id = sha256(cell.model.encode()).hexdigest()
        Models(self.session).add(model_id, stage.owner, f"{cell.model}.onnx", MODEL_BYTES[cell.model])
        options = JobOptions(search=cell.search).model_dump(mode="json")
        new = NewJob(stage.owner, cell.model, model_id, self.target_id, cell.budget, None, cell.seed, options)
        job, _ = Jobs(self.session).create(new)
        job.created_at = job.started_at = stage.began_sec
        job.state, job.context_id, job.graph = JobState.TUNING, self.context_id, self.network["graph"]
        self.session.flush()
        tasks = [_task(index, task, self.workloads) for index, task in enumerate(self.network["tasks"])]
        Tasks(self.session).add_many(job.id, tasks)
        for task in Tasks(self.session).list(job.id):
            task.family_why = f"its anchor operator is {task.family.removeprefix('operator:')}"
        return job

    def _round(self, told: dict[str, Any], trials: list[dict[str, Any]], **changes: Any) -> int:
        task = self.tasks[told["task_index"]]
        assert task.name == told["task_name"], "networks.json is of other networks than the recordings"
        same = "index", "size", "searcher", "state", "error", "stats"
        times = {name: self.at(told[name]) for name in ("created_at", "started_at", "finished_at")}
        row = (
            {name: told[name] for name in same}
            | times
            | {
                "job_id": self.job.id,
                "task_id": task.id,
                "workload_id": task.workload_id,
                "target_id": self.target_id,
                "seed": self.cell.seed,
                "reason": RoundNotes.model_validate(told["reason"]),
                "worker": self.stage.worker,
                "seen_upto": self._newest(),
                "cost_model_id": self._cost_model(told),
            }
        )
        round_id = self.session.scalars(insert(Round).values(row | changes).returning(Round.id)).one()
        hold = {"subject": str(round_id), "job_id": self.job.id, "attempt": told["attempt"], "losses": 0}
        self.session.execute(insert(LeaseRow).values(kind=WorkKind.ROUND, **hold))
        self.learned[task.family] += len(trials)
        if trials:
            rows = [self._trial(round_id, task.workload_id, at, trial) for at, trial in enumerate(trials)]
            self.session.execute(insert(Measurement), rows)
        return round_id

    def _trial(self, round_id: int, workload_id: int, slot: int, trial: dict[str, Any]) -> dict[str, Any]:
        failed = self.stage.failures > 0 and slot % self.stage.failures == self.stage.failures - 1
        timed = {"latency_us": trial["latency_us"], "run_us": pack_times(trial["run_us"]), "error": None}
        broken = {"latency_us": None, "run_us": None, "error": NO_REGISTERS}
        return {
            **(broken if failed else timed),
            "outcome": Outcome.BUILD_ERROR if failed else trial["outcome"],
            "job_id": self.job.id,
            "round_id": round_id,
            "slot": slot,
            "kind": MeasurementKind.TRIAL,
            "workload_id": workload_id,
            "target_id": self.target_id,
            "context_id": self.context_id,
            "sketch_id": self.sketches[trial["sketch"]],
            "decisions": pack_decisions(trial["decisions"]),
            "device_id": self.stage.device_id,
            "build_ms": BUILD_MS + 9 * slot,
            "run_ms": trial["run_ms"],
            "predicted": trial["predicted"],
            "origin": trial["origin"],
            "created_at": self.stage.began_sec + trial["at_sec"],
        }

    def _newest(self) -> int:
        return self.session.scalar(select(func.coalesce(func.max(Measurement.id), 0))) or 0

    def _cost_model(self, told: dict[str, Any]) -> int | None:
        """The version that proposed the round: a new one where its family grew by a fifth."""
        if told["cost_model"] is None:
            return None
        family, _, name = told["cost_model"].partition("@")[0].rpartition("/")
        known = CostModels(self.session).head(family, self.target_id, name)
        rows = self.learned[family]
        if known is not None and rows < GROWTH * known.rows:
            return known.id
        metrics = {"training_rows": rows, "groups": 1 + rows // 80}
        parent_id = known.id if known else None
        new = NewCostModel(family, self.target_id, name, self._newest(), rows, metrics, b"", parent_id)
        added = CostModels(self.session).add(new)
        added.created_at = self.at(told["created_at"])
        self.stage_run(StageKind.TRAIN, told["created_at"] - TRAINING_SEC, told["created_at"])
        return added.id


NO_REGISTERS: Final = """InternalError: Check failed: (vector_width <= 64) is false: a vector of 128 lanes
 of float32 is wider than the registers of x86-64-v4
  at CodeGenCPU::VisitStmt_(ForNode const*)"""


def _workload(task: dict[str, Any]) -> NewWorkload:
    known = task["key"], task["name"], task["op"], task["structure"], task["flops"]
    return NewWorkload(*known, "{}", {"args": []}, {}, TVM)


def _task(index: int, task: dict[str, Any], workloads: dict[str, int]) -> NewTask:
    return NewTask(index, task["name"], task["weight"], workloads[task["key"]], f"operator:{task['op']}")
