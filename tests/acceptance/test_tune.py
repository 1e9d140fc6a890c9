"""Two models tuned for real: HTTP, Celery, Redis, SQL and RPC, every part a process of its own."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mallorn import Job
from mallorn.core.values.dataset import Record
from mallorn.core.values.fleet import DeviceStatus
from mallorn.core.values.manifest import RECORDS
from tests.fixtures.command_line import mallorn
from tests.fixtures.scalars import NETWORKS as SCALARS
from tests.fixtures.scalars import chain
from tests.fixtures.service import (
    JOB_SEC,
    Service,
    log_key,
    measured_well,
    trials,
)

TRIALS = {"mlp": 8, "tiny": 8}
RELATIVE_ERROR = 1e-4


@pytest.fixture(scope="module")
def before(service: Service) -> Counter[str]:
    """What the device had run when this module's jobs began."""
    return service.executions()


@pytest.fixture(scope="module")
def jobs(service: Service, before: Counter[str], networks: Path) -> dict[str, Job]:
    """Both models at once, so that their rounds share the worker and the device."""
    started = {
        name: service.client.submit(networks / f"{name}.onnx", trials=count) for name, count in TRIALS.items()
    }
    for job in started.values():
        job.wait(JOB_SEC)
    return started


@pytest.mark.parametrize("name", TRIALS)
def test_a_job_ends_with_a_verified_schedule_for_every_workload(jobs: dict[str, Job], name: str) -> None:
    report = jobs[name].body["report"]
    assert report["schedule_count"] == report["workload_count"] > 0
    assert report["tasks_without_winner"] == []
    assert report["error_vs_untuned"] < RELATIVE_ERROR
    assert report["error_vs_onnxruntime"] < RELATIVE_ERROR
    assert set(report["latency_us"]) == {"untuned", "tuned", "onnxruntime"}


def test_tuning_beats_naive_loops(jobs: dict[str, Job]) -> None:
    """By far; how far depends on what else the machine does."""
    latency = jobs["mlp"].body["report"]["latency_us"]
    assert latency["tuned"]["median"] < latency["untuned"]["median"]


@pytest.mark.parametrize("name", TRIALS)
def test_the_budget_is_spent_to_the_last_trial(service: Service, jobs: dict[str, Job], name: str) -> None:
    assert len(trials(service.client, jobs[name])) == TRIALS[name]
    assert jobs[name].progress().trials == TRIALS[name]


def test_a_job_of_no_trials_hands_out_what_is_known(
    service: Service, jobs: dict[str, Job], networks: Path
) -> None:
    job = service.client.submit(networks / "tiny.onnx", trials=0)
    job.wait(600)
    assert job.body["ended_because"] == "no trial was asked for"
    assert job.progress().trials == 0
    assert job.body["report"]["schedule_count"] == job.body["report"]["workload_count"]


def all_trials(service: Service, jobs: dict[str, Job]) -> list[Record]:
    return [record for job in jobs.values() for record in trials(service.client, job)]


def test_no_candidate_ran_twice_that_was_measured_well(
    service: Service, before: Counter[str], jobs: dict[str, Job]
) -> None:
    records = all_trials(service, jobs)
    rows = Counter(log_key(record) for record in records if record.device is not None)
    assert service.executions() == before + rows, "each that ran is a row"
    assert set(measured_well(records).values()) == {1}


def reached(service: Service) -> list[DeviceStatus]:
    """Devices that a worker can reach, and not the one of test_batches, which has no address."""
    return [device for device in service.client.devices() if device.info.address]


def test_the_device_measured_on_all_the_cores_of_the_target(service: Service, jobs: dict[str, Job]) -> None:
    (device,) = reached(service)
    cores = json.loads(device.target)["num-cores"]
    assert device.threads == cores
    assert all(
        record.context_id is not None
        for job in jobs.values()
        for record in trials(service.client, job)
        if record.outcome == "ok"
    )


@pytest.mark.parametrize("name", TRIALS)
def test_stock_tvm_applies_the_exported_logs(
    jobs: dict[str, Job], networks: Path, tmp_path: Path, name: str
) -> None:
    directory = jobs[name].schedules(tmp_path)
    answer = apply(directory, networks / f"{name}.onnx")
    assert answer["workloads_found"] == answer["workloads"] == jobs[name].body["report"]["workload_count"]
    assert answer["relative_error"] < RELATIVE_ERROR


def test_only_the_missing_schedule_is_tuned_and_the_others_stay(
    jobs: dict[str, Job], networks: Path, tmp_path: Path
) -> None:
    """On a service of its own, which knows nothing but what the directory holds."""
    tuned = jobs["mlp"].fetch(tmp_path / "tuned")
    records = (tuned / RECORDS).read_text().splitlines()
    (tuned / RECORDS).write_text("".join(f"{line}\n" for line in records[:-1]))

    def retuned() -> dict[str, Any]:
        words = "retune", "tuned", str(networks / "mlp.onnx"), "--trials", "4", "--data", "data", "--json"
        result = mallorn(*words, cwd=tmp_path)
        assert result.returncode == 0, result.stderr
        return dict(json.loads(result.stdout))

    job = retuned()
    assert job["progress"]["trials"] == 4
    assert len(job["options"]["only"]) == 1
    after = [json.loads(line)[1][0] for line in (tuned / RECORDS).read_text().splitlines()]
    assert len(after) == len(records)
    assert all(json.loads(line)[1][0] in after for line in records[:-1])
    assert retuned() == {"missing": []}


def test_a_job_that_is_done_is_timed_again(service: Service, jobs: dict[str, Job], tmp_path: Path) -> None:
    result = mallorn("bench", jobs["mlp"].id, "--json", cwd=tmp_path, MALLORN_URL=service.url)
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert report["latency_us"]["tuned"]["median"] > 0
    assert not report["skipped_steps"]


def test_every_round_says_why_it_was_planned(jobs: dict[str, Job]) -> None:
    for job in jobs.values():
        assert all(row.reason.why for row in job.rounds())


def test_what_is_known_is_there_before_the_first_trial_and_never_measured_again(
    service: Service, jobs: dict[str, Job], networks: Path
) -> None:
    before, well = service.executions(), measured_well(all_trials(service, jobs))
    again = service.client.submit(networks / "tiny.onnx", trials=4, seed=1)
    again.wait(JOB_SEC)
    now_us = {row.index: row.latency_us for row in again.tasks()}
    known_us = {row.index: row.latency_us for row in jobs["tiny"].tasks() if row.latency_us is not None}
    assert all(now_us[index] is not None and now_us[index] <= us for index, us in known_us.items())
    fresh = service.executions() - before
    assert fresh == Counter(log_key(record) for record in trials(service.client, again) if record.device)
    assert not set(fresh) & set(well)


@pytest.mark.parametrize("name", ["scaled by a float", pytest.param("branching", marks=pytest.mark.long)])
def test_a_model_with_a_scalar_input_is_timed_whole_and_handed_out(
    service: Service, tmp_path: Path, name: str
) -> None:
    model = tmp_path / "scalar.onnx"
    model.write_bytes(SCALARS[name]())
    job = service.client.submit(model, trials=1)
    job.wait(JOB_SEC)
    report = job.body["report"]
    assert report["schedule_count"] == report["workload_count"] > 0
    assert report["error_vs_onnxruntime"] < RELATIVE_ERROR
    answer = apply(job.schedules(tmp_path / "tuned"), model)
    assert answer["workloads_found"] == answer["workloads"]
    assert answer["relative_error"] < RELATIVE_ERROR


@pytest.mark.long
def test_a_function_of_forty_operators_is_handed_out(service: Service, tmp_path: Path) -> None:
    """TVM names it after all of them, and no file may have a name of that length.

    `make test` compiles such a function in tests/integration/tvm_graph/test_exported_constructs.py.
    """
    model = tmp_path / "chain.onnx"
    model.write_bytes(chain(40))
    job = service.client.submit(model, trials=0)
    job.wait(JOB_SEC)
    report = job.body["report"]
    assert report["schedule_count"] == report["workload_count"] == 1
    assert report["error_vs_onnxruntime"] < RELATIVE_ERROR
    assert apply(job.schedules(tmp_path / "tuned"), model)["relative_error"] < RELATIVE_ERROR


@pytest.mark.long
def test_with_the_plain_recipe_stock_compile_relax_finds_the_logs(
    service: Service, networks: Path, tmp_path: Path
) -> None:
    job = service.client.submit(networks / "tiny.onnx", trials=8, recipe="plain")
    job.wait(JOB_SEC)
    assert job.body["report"]["error_vs_onnxruntime"] < RELATIVE_ERROR
    directory = job.schedules(tmp_path)
    found = run_python(STOCK, str(networks / "tiny.onnx"), str(directory))
    assert json.loads(found) == {"missing": []}


STOCK = """
import json, sys
import onnx, tvm
from tvm.relax.frontend.onnx import from_onnx
from tvm.s_tir import meta_schedule as ms

model, directory = sys.argv[1:]
target = tvm.target.Target(json.load(open(f"{directory}/manifest.json"))["target"])
database = ms.database.JSONDatabase(work_dir=directory)
mod = from_onnx(onnx.load(model))
ms.relax_integration.compile_relax(database, mod, target, None, enable_warning=True)
with target:
    legal = tvm.relax.get_pipeline("zero")(mod)
tasks = ms.relax_integration.extract_tasks(legal, target)
missing = [t.task_name for t in tasks if not database.has_workload(t.dispatched[0])]
print(json.dumps({"missing": missing}))
"""


def apply(directory: Path, model: Path) -> dict[str, Any]:
    answer = run_python(f"{directory}/apply.py", str(model), "--check")
    return dict(json.loads(answer))


def run_python(code: str, *args: str) -> str:
    """The last line that stock TVM in a plain process prints."""
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [sys.executable, *([code] if code.endswith(".py") else ["-c", code]), *args]
    done = subprocess.run(command, env=clean, capture_output=True, text=True, timeout=JOB_SEC, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()[-1]


def test_a_target_of_this_machine_that_no_device_serves_gets_one(service: Service, networks: Path) -> None:
    older = {"kind": "llvm", "mtriple": f"{os.uname().machine}-linux-gnu", "num-cores": 1}
    job = service.client.submit(networks / "dense.onnx", target=older, trials=1)
    job.wait(JOB_SEC)
    report = job.body["report"]
    assert report["schedule_count"] == report["workload_count"] > 0
    assert set(report["latency_us"]) == {"untuned", "tuned", "onnxruntime"}  # timed on this host, too
    assert len(reached(service)) == 2
