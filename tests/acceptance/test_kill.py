"""SIGKILL in the middle of a round: nothing committed is repeated, nothing is lost, the job ends."""

from pathlib import Path

from mallorn import Job
from tests.fixtures.service import Service, log_key, trials, wait_for

UNCOMMITTED = 8  # at most so many candidates may run a second time


def committed(service: Service, job: Job) -> int:
    return len(trials(service.client, job))


def idle(service: Service) -> bool:
    """Whether no worker that reports every few seconds is at work; a killed one does not report."""
    return not any(row["busy_with"] for row in service.client.workers() if row["seen_sec"] < 10)


def test_a_worker_killed_in_a_round_costs_at_most_the_uncommitted_batch(
    service: Service, networks: Path
) -> None:
    job = service.client.tune(networks / "tiny.onnx", trials=48, round_size=24)
    wait_for(lambda: committed(service, job) >= 6, 300)
    service.kill_worker()
    kept = {log_key(record) for record in trials(service.client, job) if record["outcome"] == "ok"}
    job.wait(600)

    records = trials(service.client, job)
    assert len(records) == 48
    assert len({(record["round_id"], record["slot"]) for record in records}) == 48
    assert len({log_key(record) for record in records}) == 48
    executions = service.executions()
    assert all(executions[key] == 1 for key in kept), "a committed measurement was repeated"
    assert sum(count - 1 for count in executions.values()) <= UNCOMMITTED
    assert any(event.kind == "round_returned" for event in job.events())


def test_a_paused_job_resumes_and_measures_nothing_again(service: Service, networks: Path) -> None:
    job = service.client.tune(networks / "tiny.onnx", trials=40, seed=5)
    wait_for(lambda: committed(service, job) >= 4, 300)
    job.pause()
    wait_for(lambda: idle(service))
    kept = {log_key(record) for record in trials(service.client, job) if record["outcome"] == "ok"}
    job.resume()
    job.wait(600)
    assert committed(service, job) == 40
    executions = service.executions()
    assert all(executions[key] == 1 for key in kept)


def test_a_finished_job_takes_more_trials_and_measures_nothing_again(
    service: Service, networks: Path
) -> None:
    job = service.client.tune(networks / "tiny.onnx", trials=8, seed=6)
    job.wait(600)
    before = service.executions()
    job.resume(trials=8)
    job.wait(600)
    assert committed(service, job) == 16
    fresh = service.executions() - before
    assert set(fresh.values()) == {1}
    assert not set(fresh) & set(before)


def test_a_wiped_broker_loses_nothing(service: Service, networks: Path) -> None:
    import redis

    job = service.client.tune(networks / "tiny.onnx", trials=24, seed=7)
    info = service.data.read_stack()
    assert info is not None
    socket = info.redis_url.removeprefix("redis+socket://").partition("?")[0]
    wait_for(lambda: committed(service, job) >= 4, 300)
    redis.Redis(unix_socket_path=socket).flushall()
    job.wait(600)
    assert committed(service, job) == 24
