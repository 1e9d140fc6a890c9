"""A stream of measurements becomes tasks: in order, by context, and in bounded memory."""

import pytest

from mallorn.core.outcomes import Outcome
from mallorn.db.measurement_codec import pack_decisions
from mallorn.searchers.space import Sketch
from mallorn_research.pretraining.read_measurements import NOWHERE, TaskKey, TaskSample, WorkloadFacts
from mallorn_research.pretraining.training_data import TaskData

OK, FAILED = Outcome.OK, Outcome.BUILD_ERROR
FACTS = {"w": WorkloadFacts("matmul", (1.0, 2.0)), "v": WorkloadFacts("conv2d", (3.0,))}
SKETCHES = {"s": Sketch("s", "[]", ())}


def add(
    gathering: TaskSample, number: int, latency_us: float | None, context: str = "here", **place: str
) -> None:
    where = TaskKey(place.get("workload", "w"), "cpu", context)
    outcome = OK if latency_us is not None else FAILED
    gathering.add(where, "s", pack_decisions([number]), outcome, latency_us)


def tasks(gathering: TaskSample) -> list[TaskData]:
    return gathering.tasks(FACTS, SKETCHES, {"here": "zen5", "there": "zen4"})


def numbers(task: TaskData) -> list[int]:
    return [candidate.decisions[0] for candidate in task.candidates]


def test_rows_become_a_task_for_each_workload_and_context() -> None:
    gathering = TaskSample(total=4)
    add(gathering, 0, 5.0)
    add(gathering, 1, 7.0, workload="v")
    add(gathering, 2, 4.0, context="there")
    add(gathering, 3, 6.0)
    first, second, third = tasks(gathering)
    assert (first.workload, first.op, first.context, first.descriptors) == ("w", "matmul", "here", (1.0, 2.0))
    assert (numbers(first), first.latencies_us) == ([0, 3], [5.0, 6.0])
    assert (second.workload, second.op, third.context) == ("v", "conv2d", "there")


def test_what_never_reached_a_device_is_told_where_its_workload_was_measured_in_its_turn() -> None:
    gathering = TaskSample(total=6)
    add(gathering, 0, 9.0, context="there")
    add(gathering, 1, 5.0)
    add(gathering, 2, None, context=NOWHERE)
    add(gathering, 3, 5.0)
    add(gathering, 4, None, context=NOWHERE, workload="v")
    found = tasks(gathering)
    by_place = {(task.workload, task.context): numbers(task) for task in found}
    assert by_place == {("w", "there"): [0], ("w", "here"): [1, 2, 3], ("v", NOWHERE): [4]}
    assert {task.context: task.host for task in found} == {"there": "zen4", "here": "zen5", NOWHERE: ""}


@pytest.mark.parametrize("outcome", [Outcome.WORKER_LOST, Outcome.CANCELLED])
def test_what_tells_of_the_worker_alone_is_left_out(outcome: Outcome) -> None:
    gathering = TaskSample(total=1)
    gathering.add(TaskKey("w", "cpu", "here"), "s", b"", outcome, None)
    assert tasks(gathering) == []


def test_a_large_set_is_thinned_evenly_and_keeps_the_best_of_each_task() -> None:
    total, limit = 20_000, 1000
    gathering = TaskSample(total, limit)
    for number in range(total):
        add(gathering, number, 3.0 if number == 13_579 else 10.0, workload="wv"[number % 2])
    kept = [number for task in tasks(gathering) for number in numbers(task)]
    assert len(kept) == pytest.approx(limit, rel=0.05)
    assert 13_579 in kept
    halves = sum(number < total // 2 for number in kept)
    assert halves == pytest.approx(limit / 2, rel=0.1)


def test_the_same_stream_gives_the_same_sample() -> None:
    samples = []
    for _ in range(2):
        gathering = TaskSample(total=500, limit=50)
        for number in range(500):
            add(gathering, number, 10.0 + number % 7)
        samples.append(numbers(tasks(gathering)[0]))
    assert samples[0] == samples[1]
