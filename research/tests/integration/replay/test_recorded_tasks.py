"""What a recording is made of comes out of the dataset whole, by workload and measuring context."""

import dataclasses

from mallorn.core.outcomes import Outcome
from mallorn.core.values.candidate import Choice, ChoiceKind
from mallorn.db.repositories.devices import Devices, SeenDevice
from mallorn.db.repositories.workloads import Sketches, Workloads
from mallorn_research.replay.recorded_tasks_from_dataset import measuring_hosts, recorded_tasks
from tests.fixtures.rows import new_sketch, new_workload

CHOICES = (Choice(ChoiceKind.TILE, 2, 64, 64),)
SEEN = {"cpu_model": "a cpu", "cores": 4, "hostname": "secret", "address": "10.0.0.1:9090"}


def test_tasks_come_with_failures_first_measurements_and_the_facts_of_their_context(rows):
    workload = dataclasses.replace(new_workload("lab"), features={"extents": [3, 7]}, flops=1023.0)
    rows.workloads |= rows.write(lambda session: Workloads(session).ensure_many([workload]))
    sketch = new_sketch("tiled", CHOICES)
    sketch_id = rows.write(lambda session: Sketches(session).ensure_many([sketch]))["tiled"]
    rows.job_id = rows.write(lambda session: rows.add_job(session, "ada", ("lab",)))
    like = {"sketch_id": sketch_id}
    never_there = rows.failed(1, context_id=None, **like)
    lost = rows.failed(3, Outcome.WORKER_LOST, context_id=None, **like)
    again = rows.ok(4, 99.0, decisions=(0, 2), **like)
    rows.measured_round(
        rows.ok(0, 5.0, **like), never_there, rows.ok(2, 4.0, **like), lost, again, workload="lab"
    )

    (task,) = recorded_tasks(rows.database, 3)
    assert recorded_tasks(rows.database, 4) == []
    assert (task.workload, task.name, task.descriptors) == ("lab", "fused_lab", (10.0, 2.0, 3.0))
    assert [(t.candidate.decisions, t.outcome, t.latency_us) for t in task.trials] == [
        ((0, 2), Outcome.OK, 5.0),
        ((1, 2), Outcome.BUILD_ERROR, None),
        ((2, 2), Outcome.OK, 4.0),
    ]
    assert [t.error for t in task.trials] == ["", "no", ""]
    assert [(s.key, s.decision_count) for s in task.sketches] == [("tiled", 2)]
    assert task.context["host_class"] == "host"
    assert task.optimum_us == 4.0
    assert task.failures == 1


def test_hosts_are_those_that_measured_without_their_names(rows):
    def device(name, info):
        return SeenDevice(name, rows.target_id, "h", "host", 2, "0.27.0", info)

    device_id = rows.write(lambda session: Devices(session).record_seen(device("a", SEEN)))
    rows.write(lambda session: Devices(session).record_seen(device("idle", {"cpu_model": "another"})))
    assert measuring_hosts(rows.database) == []
    rows.measured_round(rows.ok(0, device_id=device_id))
    assert measuring_hosts(rows.database) == [
        {"host_class": "host", "threads": 2, "tvm_version": "0.27.0", "cpu_model": "a cpu", "cores": 4}
    ]
