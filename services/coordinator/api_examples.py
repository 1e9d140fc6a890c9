"""Examples of parameters, requests and responses in the OpenAPI document, made from the values' classes."""

import json
from collections.abc import Mapping
from datetime import date
from typing import Any, Final

from pydantic import BaseModel, JsonValue

from mallorn.core.api_keys import OwnerAction, Scope
from mallorn.core.outcomes import Outcome
from mallorn.core.states import JobState, RoundState, StageKind, TaskState
from mallorn.core.values.access_control import ApiKey, AuditEntry, NewApiKey, OwnerStatus, Session
from mallorn.core.values.cost_model_version import CostModelMetrics, CostModelVersion
from mallorn.core.values.dataset import (
    DatasetStats,
    DayCount,
    NamedCount,
    Record,
    ScheduleScripts,
    UploadedModel,
    VerifiedSchedule,
    WholeSchedule,
)
from mallorn.core.values.decision_log import RoundForecast, RoundStatus
from mallorn.core.values.event import MeasuredEvent
from mallorn.core.values.fleet import (
    DeviceInfo,
    DeviceState,
    DeviceStatus,
    FleetActivity,
    RoundOnWorker,
    StageOnWorker,
    WithdrawIn,
    Withdrawn,
    WorkerInfo,
    WorkerState,
    WorkerStatus,
)
from mallorn.core.values.job import JobProgress, JobStatus, TaskStatus
from mallorn.core.version import VERSION
from mallorn.services.coordinator.api_key_routes import KeyIn
from mallorn.services.coordinator.health import Alive, Ready
from mallorn.services.coordinator.jobs.job_request_bodies import JobIn, ResumeIn
from mallorn.services.coordinator.list_job_options import list_options
from mallorn.services.coordinator.owner_access import OwnerIn
from mallorn.services.coordinator.retention_settings import Retention
from mallorn.services.coordinator.web.response_types import REF

Document = dict[str, Any]  # OpenAPI, or a part of it
MODEL: Final = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
JOB: Final = "2f3a6c1b0d9e8f70"
KEY: Final = "k3v9x2"
TARGET: Final = '{"kind":"llvm","mcpu":"skylake-avx512","num-cores":8}'
WORKLOAD: Final = "4698dce24e19b7f2"
TIME: Final = 1_795_000_000.0  # seconds since the epoch
WORKER: Final = "host-1-4242-0"
DEVICE: Final = "host-1-cpu"
PATH_PARAMETERS: Final[dict[str, JsonValue]] = {
    "job_id": JOB,
    "model_id": MODEL,
    "key_id": KEY,
    "cost_model_id": 3,
    "schedule_id": 7,
    "name": DEVICE,
    "action": OwnerAction.SIGN_OUT.value,
}
SCHEDULE: Final = VerifiedSchedule(
    id=7,
    job_id=JOB,
    workload=WORKLOAD,
    workload_name="conv2d",
    target=TARGET,
    context_id=1,
    latency_us=41.2,
    inside_model=True,
    low_us=41.0,
    high_us=41.5,
    max_error=1e-6,
    created_at=TIME + 900,
)
API_KEY: Final = ApiKey(
    id=KEY, owner="ada", name="laptop", scopes=(Scope.READ, Scope.SUBMIT), created_at=TIME
)
REQUESTS: Final[tuple[BaseModel, ...]] = (
    JobIn(model_id=MODEL, target="local", trials=200, name="resnet50"),
    ResumeIn(trials=100),
    KeyIn(name="laptop", owner="ada", scopes=[Scope.READ, Scope.SUBMIT], days=90),
    OwnerIn(owner="grace"),
    WithdrawIn(since=TIME, dry_run=True),
)
RESPONSES: Final[tuple[BaseModel, ...]] = (
    JobStatus(
        id=JOB,
        owner="ada",
        name="resnet50",
        model_id=MODEL,
        target=TARGET,
        trials=200,
        state=JobState.TUNING,
        progress=JobProgress(trials=64, open_candidates=16, tasks=24, tasks_measured=4),
        created_at=TIME,
        started_at=TIME + 2,
    ),
    TaskStatus(
        index=0,
        name="conv2d",
        flops=2.3e8,
        weight=3,
        latency_us=41.2,
        weighted_latency_us=123.6,
        trials=16,
        state=TaskState.WAITING,
        family="conv2d",
        workload=WORKLOAD,
    ),
    RoundStatus(
        id=11,
        index=0,
        task_index=0,
        task_name="conv2d",
        weight=3,
        size=16,
        trials=16,
        policy="first-pass",
        forecast=RoundForecast(expected_us=44.0, low_us=38.0, high_us=52.0, gain_us=6.1),
        best_us=41.2,
        searcher="evolutionary",
        state=RoundState.DONE,
        attempt=1,
        worker=WORKER,
        seconds=21.5,
        created_at=TIME + 5,
        started_at=TIME + 6,
        finished_at=TIME + 27.5,
    ),
    UploadedModel(id=MODEL, name="resnet50.onnx", size_bytes=102_442_450, created_at=TIME - 20),
    Record(
        id=101,
        job_id=JOB,
        round_id=11,
        workload=WORKLOAD,
        workload_name="conv2d",
        target=TARGET,
        outcome=Outcome.OK,
        latency_us=41.2,
        run_us=[41.1, 41.2, 41.4],
        device=DEVICE,
        created_at=TIME + 20,
    ),
    SCHEDULE,
    WholeSchedule(
        **SCHEDULE.model_dump(),
        trace="[[], []]",
        run_us=[41.1, 41.2, 41.4],
        scripts=ScheduleScripts(
            original="@T.prim_func ...", scheduled="@T.prim_func ...", trace="sch.vectorize(loop)"
        ),
    ),
    DatasetStats(
        measurements=64,
        workloads=4,
        targets=[NamedCount(name=TARGET, count=64)],
        operators=[NamedCount(name="conv2d", count=64)],
        models=[NamedCount(name="resnet50", count=64)],
        outcomes=[NamedCount(name="ok", count=64)],
        days=[DayCount(day=date(2026, 11, 18), count=64, total=64)],
    ),
    CostModelVersion(
        id=3,
        full_name="conv2d/xgb@2",
        family="conv2d",
        target=TARGET,
        name="xgb",
        version=2,
        active=True,
        seen_upto=101,
        rows=64,
        metrics=CostModelMetrics(training_rows=64, pairwise=0.83),
        created_at=TIME + 60,
    ),
    DeviceStatus(
        id=1,
        name=DEVICE,
        target=TARGET,
        host_id="host-1",
        host_class="x86_64-8",
        threads=8,
        tvm_version="0.24.0",
        info=DeviceInfo(address="127.0.0.1:9090", hostname="host-1", machine="x86_64", cores=8),
        busy=True,
        state=DeviceState.MEASURING,
        last_seen=TIME + 20,
        silent_sec=1.5,
        online=True,
    ),
    Withdrawn(measurements=64, schedules=1, cost_models=1, jobs=[JOB]),
    WorkerStatus(
        id=WORKER,
        host_id="host-1",
        info=WorkerInfo(pid=4242, tvm_version="0.24.0"),
        busy_with="round 11",
        state=WorkerState.BUSY,
        started_at=TIME - 3600,
        last_seen=TIME + 20,
        uptime_sec=3620.0,
        silent_sec=1.5,
    ),
    FleetActivity(
        current_time=TIME + 30,
        since=TIME - 3570,
        rounds=[
            RoundOnWorker(
                round_id=11,
                job_id=JOB,
                job_name="resnet50",
                task_index=0,
                task_name="conv2d",
                state=RoundState.DONE,
                worker=WORKER,
                device=DEVICE,
                trials=16,
                failures=0,
                measuring_sec=12.5,
                started_at=TIME + 6,
                finished_at=TIME + 27.5,
            )
        ],
        stages=[
            StageOnWorker(
                id=1,
                job_id=JOB,
                job_name="resnet50",
                kind=StageKind.IMPORT,
                worker=WORKER,
                started_at=TIME + 2,
                finished_at=TIME + 5,
            )
        ],
        is_complete=True,
        queued_rounds=1,
        jobs={"tuning": 1},
    ),
    API_KEY,
    NewApiKey(**API_KEY.model_dump(), key=f"mln_{KEY}_SECRET"),
    OwnerStatus(owner="grace"),
    Session(owner="ada", scopes=(Scope.READ, Scope.SUBMIT), requires_key=True),
    AuditEntry(id=5, at=TIME, owner="ada", key_id=KEY, method="POST", path="/api/v1/jobs", status=201),
    Retention(keep_jobs_days=90, keep_backups=3),
    Alive(version=VERSION),
    Ready(),
    list_options().items[0],
)
EVENT: Final = MeasuredEvent(round=11, task=0, name="conv2d", trials=4, failures=0, best_us=41.2)
TEXTS: Final = {
    "text/event-stream": f"id: 7\nevent: {EVENT.kind}\ndata: {json.dumps(EVENT.to_client_json())}\n\n",
    "text/html": "<!doctype html><html lang='en'>...</html>",
}


def add_examples(document: Document) -> None:
    """Add examples to path parameters, to requests in JSON, and to successful responses in text."""
    requests = {type(value).__name__: value.model_dump(mode="json", exclude_unset=True) for value in REQUESTS}
    responses = {type(value).__name__: value.model_dump(mode="json") for value in RESPONSES}
    schemas = document["components"]["schemas"]
    for operation in (operation for methods in document["paths"].values() for operation in methods.values()):
        for parameter in operation.get("parameters", []):
            if parameter["in"] == "path":
                parameter["example"] = PATH_PARAMETERS[parameter["name"]]
        bodies = [(operation.get("requestBody", {}), requests)]
        bodies += [(body, responses) for status, body in operation["responses"].items() if status[0] == "2"]
        for body, examples in bodies:
            for kind, content in body.get("content", {}).items():
                if kind in TEXTS:
                    content["example"] = TEXTS[kind]
                elif kind == "application/json":
                    content["example"] = _example(content["schema"], examples, schemas)


def _example(schema: Document, examples: Mapping[str, JsonValue], schemas: Document) -> JsonValue:
    """Return the example of a schema; for a page or list, one with a single item."""
    if "anyOf" in schema:
        return _example(schema["anyOf"][0], examples, schemas)
    name = schema["$ref"].removeprefix(REF.format(model=""))
    if name in examples:
        return examples[name]
    properties = schemas[name]["properties"]
    page: dict[str, JsonValue] = {"items": [_example(properties["items"]["items"], examples, schemas)]}
    return page | ({"next_cursor": None} if "next_cursor" in properties else {})
