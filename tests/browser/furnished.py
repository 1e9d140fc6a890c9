"""A service in the middle of a working day: recorded tunings, and states that none of them was in.

What is told of the recorded jobs was measured (docs/results/search_real); their clocks are moved, and what
no recording has (failures, jobs that wait, names that are too long, programs to read) is made up.
"""

import json
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from mallorn.core.artifact_uris import scripts_uri
from mallorn.core.job_options import JobOptions
from mallorn.core.states import PAUSED_BY_OWNER, Cause, JobState, StageKind
from mallorn.core.targets import parse_target
from mallorn.core.values.job import SuggestedOptions
from mallorn.db.repositories.cost_models import CostModels, NewCostModel
from mallorn.db.repositories.devices import Devices, SeenDevice
from mallorn.db.repositories.jobs import Jobs, NewJob
from mallorn.db.repositories.schedules import NewSchedule, Schedules
from mallorn.db.repositories.stored_files import Models
from mallorn.db.repositories.targets import Targets
from mallorn.db.repositories.workers import Workers
from mallorn.db.session import Database
from mallorn.db.tables import Device, Job, Measurement, Worker
from tests.browser.played import OWNER, TVM, Player, Stage
from tests.browser.recorded import Recording, recording

MINUTE: Final = 60.0
DAY: Final = 86_400.0
SLOTS: Final = ("rack1-4711-tuner1", "rack2-1297-tuner1")
JETSON: Final = {"kind": "cuda", "arch": "sm_87", "max_threads_per_block": 1024}
SCRIPTS: Final = Path(__file__).with_name("scripts.json")
UNDER_WAY: Final = 58  # rounds of the job that is being tuned
LONG_NAME: Final = "detector-int8-dynamic-shapes-export-of-the-perception-team-2026-11-18-final-2.onnx"
FREE_DIMENSIONS: Final = """these inputs have free dimensions: input_ids [batch, 128]; mask [batch, 128]
--input-shape input_ids:1,128 --input-shape mask:1,128"""
NO_DEVICE: Final = """no device serves this target, and none has for 5 minutes; the job waits for one
mallorn device --tracker 127.0.0.1:9190   (then it goes on by itself)"""
POOR: Final = {
    "latency_us": {
        "untuned": {"median": 578_923.0, "low": 566_810.0, "high": 582_790.0},
        "tuned": {"median": 17_640.0, "low": 15_020.0, "high": 19_910.0},
        "onnxruntime": {"median": 4_212.0, "low": 3_361.0, "high": 5_746.0},
    },
    "schedule_count": 4,
    "skipped_steps": [
        {
            "step": "profile",
            "reason": "the budget in minutes was spent before it",
            "hint": "mallorn profile model.onnx",
        }
    ],
    "limits": {"flop": 2.9e9, "peak_gflops": 410.0, "peak_share": 0.4},
    "conditions": {
        "steady": False,
        "note": "The host was busy while the model was timed.",
    },
    "seconds": {
        "import": {"wall": 6.21},
        "probe": {"wall": 0.02, "processor": 0.01},
        "decide": {"wall": 21.4, "processor": 30.2},
        "export": {"wall": 0.48, "processor": 0.3},
        "compare": {"wall": 17.9, "processor": 9.75},
    },
}
NO_OPERATOR: Final = """the importer does not know the operator NonMaxSuppression, node /model/head/nms_0
export the model without it, or cut it off with onnx.utils.extract_model"""


@dataclass(frozen=True, slots=True)
class Furnished:
    """The jobs to look at, by what is to be seen."""

    tuning: str
    done: str
    other: str  # the same network by another searcher
    paused: str
    failed: str
    queued: str
    first: str  # a first try with a budget for four rounds: some tasks were never timed
    short: str  # an import that was refused for want of input shapes
    stuck: str  # a job that waits for a device


def furnish(database: Database, artifacts: Path, now_sec: float) -> Furnished:
    """Fill an empty database with three days of work that end now."""
    with database.transaction() as session:
        return House(session, artifacts, now_sec).furnish()


class House:
    """Brings the furniture in."""

    def __init__(self, session: Session, artifacts: Path, now_sec: float) -> None:
        self.session = session
        self.artifacts = artifacts
        self.now_sec = now_sec
        self.first = recording("mlp")
        self.devices = [self._device(f"epyc-{number}", number) for number in (1, 2)]
        self._silent_device()

    def furnish(self) -> Furnished:
        """Older work first: what is known when a job begins depends on it."""
        for seed, days in ((0, 3.0), (1, 2.1), (2, 1.2)):
            self.ended(recording("mlp", seed), days * DAY, room=f"-{seed}")
        ada = {"room": "-ada", "owner": "ada"}
        self.ended(recording("resnet18", 1), 36 * MINUTE, slot=1, **ada)
        done = self.ended(recording("bert-small"), 27 * MINUTE)
        other = self.ended(recording("bert-small", search="evolutionary"), 19 * MINUTE, slot=1, room="-2")
        furnished = Furnished(
            tuning=self.under_way(recording("resnet18")).id,
            done=done.id,
            other=other.id,
            paused=self.paused(recording("mlp", 2)).id,
            failed=self.unplayed(LONG_NAME, 95 * MINUTE, JobState.FAILED, NO_OPERATOR).id,
            queued=self.unplayed("vit-tiny.onnx", 0.4 * MINUTE, JobState.QUEUED, "").id,
            first=self.first_try(recording("bert-small", 1)).id,
            short=self.refused().id,
            stuck=self.stuck(recording("mlp", 1)).id,
        )
        self.unplayed("mobilenetv2.onnx", 75 * MINUTE, JobState.CANCELLED, "cancelled by its owner")
        self.unplayed("whisper-tiny-encoder.onnx", 0.8 * MINUTE, JobState.IMPORTING, "")
        self.workers(furnished)
        self.bases()
        return furnished

    def ended(self, cell: Recording, ago_sec: float, slot: int = 0, **stage: Any) -> Job:
        """A whole tuning, so long ago, with its finish."""
        player = self._player(cell, ago_sec, slot, **stage)
        job = player.play()
        job.state, job.reason = JobState.DONE, f"the budget of {job.trials} trials is spent"
        job.finished_at = job.created_at + cell.took_sec
        tuned_sec = cell.rounds[-1]["finished_at"]
        player.stage_run(StageKind.FINISH, tuned_sec, tuned_sec + cell.report["finish_sec"])
        job.report, job.export_uri = cell.report, str(self._exported(job))
        self._promote(player)
        return job

    def under_way(self, cell: Recording) -> Job:
        """A tuning whose next round runs: the last one has just ended."""
        last, following = cell.rounds[UNDER_WAY - 1], cell.rounds[UNDER_WAY]
        ago_sec = last["finished_at"] - cell.submitted_sec + 3.0
        player = self._player(cell, ago_sec, 0, rounds=UNDER_WAY)
        job = player.play()
        player.leave_open(following, cell.trials[UNDER_WAY][:4], self.now_sec - 2.0)
        return job

    def first_try(self, cell: Recording) -> Job:
        """Four rounds for fourteen tasks, and a finish that says how little that was."""
        job = self._player(cell, 14 * MINUTE, 1, rounds=4, room="-first").play()
        job.state, job.trials, job.reason = JobState.DONE, 32, "the budget of 32 trials is spent"
        job.finished_at = job.created_at + 95.0
        job.report, job.export_uri = cell.report | POOR, str(self._exported(job))
        return job

    def refused(self) -> Job:
        """An import that would have needed the shapes of its inputs."""
        job = self.unplayed("encoder-1.onnx", 50 * MINUTE, JobState.FAILED, FREE_DIMENSIONS)
        shapes = {"input_ids": [1, 128], "mask": [1, 128]}
        job.suggest = SuggestedOptions(input_shapes=shapes)
        return job

    def stuck(self, cell: Recording) -> Job:
        """Two rounds, then the only device went away."""
        job = self._player(cell, 6 * MINUTE, 1, rounds=2, room="-stuck").play()
        job.name, job.reason, job.cause = "mlp-wide", NO_DEVICE, Cause.NO_DEVICE
        return job

    def paused(self, cell: Recording) -> Job:
        """Half of a tuning, with failures."""
        job = self._player(cell, 9 * MINUTE, 1, rounds=7, failures=6, room="-paused").play()
        job.state, job.resume_state = JobState.PAUSED, JobState.TUNING
        job.reason, job.cause = PAUSED_BY_OWNER, Cause.OWNER
        return job

    def unplayed(self, name: str, ago_sec: float, state: JobState, reason: str) -> Job:
        """A job of which nothing was measured."""
        model_id = Models(self.session).add(sha256(name.encode()).hexdigest(), OWNER, name, 12_345_678).id
        target_id = Targets(self.session).ensure(parse_target(self.first.target)).id
        options = JobOptions().model_dump(mode="json")
        job, _ = Jobs(self.session).create(NewJob(OWNER, name, model_id, target_id, 500, None, 0, options))
        job.created_at, job.state, job.reason = self.now_sec - ago_sec, state, reason
        job.finished_at = job.created_at + 8.0 if state.is_final else None
        self.session.flush()
        return job

    def workers(self, jobs: Furnished) -> None:
        """Two slots, and one that went silent an hour ago."""
        busy = (
            f"round {UNDER_WAY} of job {jobs.tuning}: fused_conv2d3_add3_relu3",
            "importing the model of a job",
        )
        for name, words in zip(SLOTS, busy, strict=True):
            Workers(self.session).record_seen(name, name[:5], {"pid": 4711}, words)
        Workers(self.session).record_seen("rack1-4100-tuner1", "rack1", {"pid": 4100}, "")
        self.session.flush()
        for worker in self.session.scalars(select(Worker)):
            worker.started_at = self.now_sec - 3.2 * DAY
            # A day ahead: nobody renews these rows while the pictures are taken.
            worker.last_seen = self.now_sec + (DAY if worker.id in SLOTS else -60 * MINUTE)

    def bases(self) -> None:
        """What `mallorn costmodels pretrain` would have stored."""
        target_id = Targets(self.session).ensure(parse_target(self.first.target)).id
        for op, rows, pairwise in (("matmul", 1180, 0.81), ("conv2d", 910, 0.77)):
            metrics = {
                "pairwise": pairwise,
                "peak_1": 0.9,
                "training_rows": rows,
                "tasks": rows // 90,
                "split": "by-task",
                "splits": {"by-task": {"pairwise": pairwise}, "within-task": {"pairwise": 0.62}},
            }
            new = NewCostModel(
                f"base:{op}", target_id, "xgboost", 3000, rows, metrics, b"", snapshot="november"
            )
            CostModels(self.session).add(new).created_at = self.now_sec - DAY

    def _player(self, cell: Recording, ago_sec: float, slot: int, **stage: Any) -> Player:
        place = Stage(self.now_sec - ago_sec, SLOTS[slot], self.devices[slot], **stage)
        return Player(self.session, cell, place)

    def _promote(self, player: Player) -> None:
        """The times that the recorded finish came to; each schedule can be read."""
        for task in player.tasks.values():
            latency_us = player.cell.report["tasks_us"].get(task.name)
            own = Measurement.job_id == player.job.id, Measurement.workload_id == task.workload_id
            timed = select(Measurement.id).where(*own, Measurement.latency_us.is_not(None))
            fastest = self.session.scalar(timed.order_by(Measurement.latency_us).limit(1))
            if latency_us is None or fastest is None:
                continue
            trace = json.dumps([player.job.id])
            times = latency_us * 0.99, latency_us, latency_us * 1.02
            new = NewSchedule(
                *(task.workload_id, player.target_id, player.context_id, fastest, player.job.id),
                *(latency_us, times[0], times[2], player.cell.report["error_vs_untuned"], trace, times),
            )
            Schedules(self.session).promote(new).created_at = player.job.finished_at or 0.0
            self._keep_scripts(player, task.name, trace)

    def _keep_scripts(self, player: Player, name: str, trace: str) -> None:
        key = next(task["key"] for task in player.network["tasks"] if task["name"] == name)
        file = Path(scripts_uri(str(self.artifacts), player.job.owner, key, trace))
        file.parent.mkdir(parents=True, exist_ok=True)
        variant = json.loads(SCRIPTS.read_text())[player.cell.search == "evolutionary"]
        file.write_text(json.dumps(variant))

    def _exported(self, job: Job) -> Path:
        folder = self.artifacts / "exports" / job.id
        folder.mkdir(parents=True)
        for name in ("database_workload.json", "database_tuning_record.json"):
            (folder / name).write_text("[]\n")
        return folder

    def _device(self, name: str, number: int) -> int:
        host = self.first.host
        info = {"cpu_model": host["cpu_model"], "address": f"10.0.0.{10 + number}:9090", "busy": number == 1}
        target_id = Targets(self.session).ensure(parse_target(self.first.target)).id
        seen = SeenDevice(name, target_id, f"rack{number}", host["host_class"], 2, TVM, info)
        return self._seen(seen, self.now_sec + DAY)

    def _silent_device(self) -> None:
        target_id = Targets(self.session).ensure(parse_target(JETSON)).id
        info = {"cpu_model": "ARMv8 Processor rev 1 (v8l)", "address": "10.0.0.31:9090"}
        seen = SeenDevice("jetson-orin", target_id, "jetson", "jetson-orin-8c", 1, TVM, info)
        self._seen(seen, self.now_sec - 3 * 60 * MINUTE)

    def _seen(self, device: SeenDevice, at_sec: float) -> int:
        device_id = Devices(self.session).record_seen(device)
        self.session.get_one(Device, device_id).last_seen = at_sec
        return device_id
