"""SIGKILL in the middle of a round: nothing committed is repeated, nothing is lost, the job ends."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mallorn import Job
from mallorn.workers.device.detect_host import available_cores
from mallorn.workers.round.run import RESULTS_PER_COMMIT
from tests.fixtures.service import (
    JOB_SEC,
    Service,
    bounds,
    log_key,
    measured_well,
    seldom,
    start_service,
    stop_service,
    trials,
)
from tests.fixtures.waiting import wait_for

# So many candidates may run a second time: what waits for its commit, and what was built side by side.
UNCOMMITTED = RESULTS_PER_COMMIT + available_cores()
TRIALS = 24
LEASE_SEC = 15  # the work of a worker that was killed goes on so long after its last word
# Others end a job early once they expect no more of it, which the jobs before may bring about.
WHOLE_BUDGET = "round-robin"
# Made-up times, for what is about the service; slow enough to find its jobs at work.
MADE_UP: Any = {"measurer": "simulated", "simulated": {"device_sec": 0.2}}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One whose parts are killed here."""
    started = start_service(tmp_path_factory.mktemp("killed"), MALLORN_LEASE_SEC=str(LEASE_SEC))
    yield started
    stop_service(started)


def committed(service: Service, job: Job) -> int:
    return len(trials(service.client, job))


def wait_until_committed(service: Service, job: Job, count: int) -> None:
    wait_for(seldom(lambda: committed(service, job) >= count), f"{count} trials", JOB_SEC)


def idle(service: Service) -> bool:
    """Whether no worker that reports every few seconds is at work; a killed one does not report."""
    return not any(row.busy_with for row in service.client.workers() if row.silent_sec < 10)


def test_a_worker_killed_in_a_round_costs_at_most_the_uncommitted_batch(
    service: Service, networks: Path
) -> None:
    # One round, and timings so long that it is met in its middle.
    long: Any = {"round_size": TRIALS, "evaluator": {"min_repeat_ms": 150}}
    job = service.client.submit(networks / "dense.onnx", trials=TRIALS, policy=WHOLE_BUDGET, **long)
    has_some = seldom(lambda: measured_well(trials(service.client, job)))
    wait_for(has_some, "a time that nothing disturbed", JOB_SEC)
    service.kill_worker(job)
    assert committed(service, job) < TRIALS
    kept = measured_well(trials(service.client, job))
    assert kept, "the kill came before anything was measured"
    job.wait(JOB_SEC)

    records = trials(service.client, job)
    assert len(records) == TRIALS
    assert len({(record.round_id, record.slot) for record in records}) == TRIALS
    assert set(measured_well(records).values()) == {1}
    executions, rows = service.executions(), Counter(log_key(record) for record in records)
    assert all(executions[key] == rows[key] for key in kept), "a committed measurement was repeated"
    assert sum(count - 1 for count in executions.values()) <= UNCOMMITTED + bounds(records)
    assert any(event.kind == "round_returned" for event in job.events())


def test_a_paused_job_resumes_and_measures_nothing_again(service: Service, networks: Path) -> None:
    job = service.client.submit(networks / "dense.onnx", trials=16, seed=5, policy=WHOLE_BUDGET, **MADE_UP)
    wait_until_committed(service, job, 4)
    job.pause()
    wait_for(seldom(lambda: idle(service)), "the worker to stand still", JOB_SEC)
    kept = committed(service, job)
    assert kept < 16
    job.resume()
    job.wait(JOB_SEC)
    records = trials(service.client, job)
    assert len(records) == len({log_key(record) for record in records}) == 16


def test_a_finished_job_takes_more_trials_and_measures_nothing_again(
    service: Service, networks: Path
) -> None:
    job = service.client.submit(networks / "dense.onnx", trials=8, seed=6, policy=WHOLE_BUDGET, **MADE_UP)
    job.wait(JOB_SEC)
    assert committed(service, job) == 8
    job.resume(trials=8)
    job.wait(JOB_SEC)
    records = trials(service.client, job)
    assert len(records) == len({log_key(record) for record in records}) == 16


def test_a_wiped_broker_loses_nothing(service: Service, networks: Path) -> None:
    import redis

    job = service.client.submit(networks / "dense.onnx", trials=12, seed=7, policy=WHOLE_BUDGET, **MADE_UP)
    info = service.data.read_stack()
    assert info is not None
    socket = info.redis_url.removeprefix("redis+socket://").partition("?")[0]
    wait_until_committed(service, job, 4)
    redis.Redis(unix_socket_path=socket).flushall()
    job.wait(JOB_SEC)
    assert committed(service, job) == 12
