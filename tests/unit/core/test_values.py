"""Values that are stored and sent: read with patience, written as they always were."""

from typing import Any

import pytest
from pydantic import ValidationError

from mallorn.core.states import JobState
from mallorn.core.values.cost_model_version import CostModelMetrics
from mallorn.core.values.event import (
    KINDS,
    FailedEvent,
    FamilyChangedEvent,
    FinishingEvent,
    OtherEvent,
    RoundClosedEvent,
    RoundPlannedEvent,
    read_event,
)
from mallorn.core.values.finish_report import FinishReport
from mallorn.core.values.fleet import DeviceInfo, WorkerInfo
from mallorn.core.values.graph_report import GraphReport
from mallorn.core.values.job import JobStatus, TaskStatus

TIMING = {"median": 2.0, "low": 1.0, "high": 3.0, "bursts": [1.0, 2.0, 3.0]}
FINISH = {
    "schedule_count": 2,
    "workload_count": 3,
    "unscheduled_workloads": ["add"],
    "tasks_us": {"dense": 1.5},
    "tasks_without_winner": ["add"],
    "model_contests": {
        "tasks": [{"task": "dense", "before_us": 2.0, "after_us": 1.0}],
        "latency_us": {"before": 5.0, "after": 4.0},
        "uses_replacements": True,
        "seconds": 1.5,
    },
    "contention": {
        "tasks": [{"task": "dense", "before_us": 3.0, "after_us": 2.0}],
        "loads": [{"programs": 0, "alone_us": 4.0, "loaded_us": 5.0}],
        "min_programs": None,
        "seconds": 9.5,
    },
    "latency_us": {"untuned": TIMING, "tuned": TIMING},
    "conditions": {"steady": True, "note": ""},
    "error_vs_untuned": 1e-6,
    "error_vs_onnxruntime": None,
    "limits": {"flop": 1e9, "peak_gflops": 100.0, "peak_share": 0.5},
    "finish_sec": 12.5,
    "trials": 64,
    "outcomes": {"ok": 60, "run_error": 4},
    "skipped_steps": [{"step": "time onnxruntime", "reason": "it died", "hint": ""}],
}
GRAPH = {
    "inputs": [{"name": "x", "dtype": "float32", "shape": [1, 8]}],
    "outputs": [{"name": "y", "dtype": "float32", "shape": [1, 2]}],
    "input_ranges": {"ids": [0, 30]},
    "onnx_operators": {"Gemm": 1},
    "operators_before": {"matmul": 1},
    "operators_after": {"fused_matmul": 1},
    "steps": [
        {"pass": "p", "functions_before": 0, "ops_before": 3, "functions_after": 1, "ops_after": 2},
    ],
    "recipe": {
        "name": "tuned",
        "version": 6,
        "before": [{"pass": "p", "args": [{"nn.conv2d": ["NHWC", "HWIO"]}], "optional": True}],
        "after": [],
    },
    "tvm_version": "0.27",
}
# What was stored with each kind, since the first version that knew it.
EVENTS: list[tuple[str, dict[str, Any]]] = [
    ("submitted", {"trials": 64, "minutes": None}),
    ("imported", {"tasks": 3, "known_measurements": 0}),
    ("family_changed", {"task": 1, "name": "dense", "from": "a", "to": "b", "reason": "alike"}),
    ("round_planned", {"round": 0, "task": 1, "name": "dense", "size": 16, "policy": "mine", "note": [1]}),
    ("measured", {"round": 0, "task": 1, "name": "dense", "trials": 4, "failures": 4, "best_us": None}),
    ("round_closed", {"round": 0, "task": 1, "name": "dense", "propose_sec": 0.5, "measure_sec": 2.0,
                      "candidates": 16, "cost_model": None, "own_accuracy": None}),
    ("round_returned", {"round": 0, "attempt": 1, "error": "lost"}),
    ("round_poisoned", {"round": 0, "attempt": 3, "error": "lost"}),
    ("stage_returned", {"state": "finishing", "error": "it died"}),
    ("warning", {"source": "searcher m:S", "message": "it raised", "hint": ""}),
    ("finishing", {"reason": "the budget is spent"}),
    ("checked", {"task": 1, "name": "dense", "latency_us": 10.0}),
    ("exported", {"seconds": 12.3}),
    ("exported", {"seconds": 12.3, "latency_ratio": 0.841}),
    ("done", {"report": FINISH}),
    ("bench_started", {}),
    ("benched", {"report": FINISH}),
    ("failed", {"error": "InvalidModel", "detail": "", "hint": "", "suggest": {"input_shapes": {"x": [1]}}}),
    ("failed", {"reason": "the worker died or stopped responding 10 times"}),
    ("paused", {"state": "paused", "reason": "no compiler"}),
    ("resumed", {"state": "tuning", "trials": 64}),
    ("cancelled", {"state": "cancelled", "trials": 64}),
]  # fmt: skip


def test_a_report_is_stored_as_it_was_told() -> None:
    assert FinishReport.model_validate(FINISH, extra="forbid").to_stored_json() == FINISH
    assert GraphReport.model_validate(GRAPH, extra="forbid").to_stored_json() == GRAPH


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"latency_us": {"tuned": TIMING, "onnxruntime": None}},
        {"skipped_steps": [{"step": "run"}], "of_a_later_version": 1},
        {"limits": {"flop": 1.0}, "conditions": {}},
    ],
)
def test_a_report_of_another_version_is_read(told: dict[str, Any]) -> None:
    report = FinishReport.model_validate(told)
    assert report.is_undisturbed
    assert report.peak_share is None


def test_a_job_is_read_from_an_answer_that_lacks_what_is_new_and_has_what_is_unknown() -> None:
    job = JobStatus.model_validate(
        {"id": "j", "state": "done", "options": {"search": "mine:Mine", "of_old": 1}, "colour": "red"}
    )
    assert (job.state, job.options.search, job.report) == (JobState.DONE, "mine:Mine", None)
    task = TaskStatus.model_validate({"index": 0, "name": "dense", "state": "waiting"})
    assert task.latency_us is None
    assert DeviceInfo.model_validate({"gpu": "one"}) == DeviceInfo()


def test_a_gpu_is_told_with_its_memory_and_driver() -> None:
    known = DeviceInfo(accelerator="NVIDIA H100", gpu_memory_bytes=80 << 30, gpu_driver="580.159.04")
    assert known.gpu_words == "NVIDIA H100, 80 GiB, driver 580.159.04"
    assert DeviceInfo(accelerator="Adreno").gpu_words == "Adreno"
    assert DeviceInfo().gpu_words == ""
    assert WorkerInfo.model_validate({"pid": 1}).can_tune
    assert CostModelMetrics.model_validate({"training_rows": 64, "groups": 4}).pairwise is None


@pytest.mark.parametrize(("kind", "payload"), EVENTS)
def test_an_event_is_stored_as_it_always_was(kind: str, payload: dict[str, Any]) -> None:
    event = read_event(kind, payload)
    assert not isinstance(event, OtherEvent)
    assert (event.kind, event.payload()) == (kind, payload)


def test_every_kind_is_among_those() -> None:
    assert {kind for kind, _ in EVENTS} == KINDS


@pytest.mark.parametrize(("kind", "payload"), [("sung", {"song": [1]}), ("measured", {"round": 1})])
def test_an_event_of_another_version_comes_as_it_was(kind: str, payload: dict[str, Any]) -> None:
    event = read_event(kind, payload)
    assert isinstance(event, OtherEvent)
    assert (event.kind, event.payload()) == (kind, payload)


def test_who_writes_an_event_gives_all_that_it_tells() -> None:
    with pytest.raises(ValidationError):
        FinishingEvent.model_validate({})
    moved = FamilyChangedEvent(task=1, name="dense", old="a", new="b", reason="alike")
    assert moved.payload() == {"task": 1, "name": "dense", "from": "a", "to": "b", "reason": "alike"}
    assert FailedEvent(reason="alone").payload() == {"reason": "alone"}


def test_what_a_policy_of_ones_own_noted_goes_with_the_round() -> None:
    event = read_event("round_planned", {"round": 0, "task": 0, "name": "d", "size": 1, "bonus": 0.1})
    assert isinstance(event, RoundPlannedEvent)
    assert event.payload()["bonus"] == 0.1


def test_a_closed_round_has_its_figures() -> None:
    told = {"round": 0, "task": 0, "name": "d", "measure_sec": 2.0, "own_accuracy": 0.75}
    event = read_event("round_closed", told)
    assert isinstance(event, RoundClosedEvent)
    assert event.own_accuracy == 0.75
