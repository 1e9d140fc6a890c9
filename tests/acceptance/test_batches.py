"""A device that no worker reaches: batches are carried to another folder and a bare Python, and back."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from shutil import copy, copytree, ignore_patterns
from typing import Any

from mallorn import Job
from mallorn.core.states import JobState
from mallorn.core.values.manifest import MANIFEST, read_manifest
from mallorn.workers.detached.run_batch import FORMAT
from tests.fixtures.batches import keep_first_outcome, outcomes
from tests.fixtures.command_line import clean_environment, typed
from tests.fixtures.service import Service, bounds, log_key, seldom, trials
from tests.fixtures.waiting import wait_for

TRIALS = 4
PACKAGES = ("tvm", "tvm_ffi", "numpy", "numpy.libs", "ml_dtypes", "typing_extensions.py")
COMPILER = "libtvm_compiler.so"


class Elsewhere:
    """Another machine: a folder, and a Python that finds only numpy and the runtime libraries of TVM."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        packages = folder / "packages"
        packages.mkdir(parents=True)
        found = find_spec("numpy")
        assert found is not None
        assert found.origin is not None
        installed = Path(found.origin).parent.parent
        for name in PACKAGES:  # copies: the walls of a batch refuse what links lead to
            if (installed / name).is_dir():
                copytree(installed / name, packages / name, ignore=ignore_patterns(COMPILER, "__pycache__"))
            else:
                copy(installed / name, packages)
        self._env = {"PYTHONPATH": str(packages), "PATH": os.defpath, "HOME": str(folder)}

    def receive(self, file: Path) -> Path:
        copy(file, self.folder)
        copy(file.parent / "run_batch.py", self.folder)
        return self.folder / f"{file.name}.results.jsonl"

    def begin(self, name: str) -> "subprocess.Popen[str]":
        python = os.path.realpath(sys.executable)
        command = [python, "-S", "run_batch.py", name]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, cwd=self.folder, env=self._env, stdout=pipe, stderr=subprocess.STDOUT, text=True
        )

    def run(self, name: str) -> None:
        process = self.begin(name)
        said, _ = process.communicate(timeout=900)
        assert process.returncode == 0, said


def batch(service: Service, *words: object) -> "subprocess.CompletedProcess[str]":
    env = clean_environment(MALLORN_DATA_DIR=str(service.data.path))
    command = typed("batch", *map(str, words))
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=900, check=False)


def told(service: Service, *words: object) -> dict[str, Any]:
    done = batch(service, *words, "--json")
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def begun(service: Service, networks: Path) -> Job:
    job = service.client.submit(
        networks / "dense.onnx", trials=TRIALS, measurer="detached", round_size=4, stopping="racing"
    )

    def tunes() -> bool:
        return job.refresh().state == JobState.TUNING

    wait_for(seldom(tunes), "the import", 600)
    return job


def test_a_job_is_tuned_on_a_machine_that_no_worker_reaches(
    service: Service, networks: Path, tmp_path: Path
) -> None:
    job, there = begun(service, networks), Elsewhere(tmp_path / "there")
    before = service.executions()

    lost = told(service, "next", job.id, "-o", tmp_path / "lost.zip")
    lost_results = there.receive(tmp_path / "lost.zip")
    there.run("lost.zip")
    again = batch(service, "drop", lost["batch"])
    assert again.returncode == 0, again.stderr
    refused = batch(service, "take", lost_results)
    assert refused.returncode > 0
    assert "it was dropped" in refused.stderr
    assert trials(service.client, job) == []

    first = told(service, "next", job.id, "-o", tmp_path / "first.zip", "--limit", "1M")
    results = there.receive(tmp_path / "first.zip")
    process = there.begin("first.zip")
    wait_for(lambda: outcomes(results), "a first result", 600)
    process.kill()
    process.communicate()
    keep_first_outcome(results)  # it may have been quicker than the kill
    half = told(service, "take", results)
    assert 1 <= half["new"] < first["runs"]
    assert half["left"] == first["runs"] - half["new"]
    there.run("first.zip")
    assert told(service, "take", results)["new"] == half["left"]
    assert told(service, "take", results)["new"] == 0, "results that come twice are passed over"
    assert len(trials(service.client, job)) == first["runs"]

    for number in range(TRIALS):
        file = tmp_path / f"{number}.zip"
        told(service, "next", job.id, "-o", file)
        results = there.receive(file)
        there.run(file.name)
        told(service, "take", results)
        if job.refresh().state == JobState.DONE:
            break

    report = job.body["report"]
    assert report["schedule_count"] == report["workload_count"] > 0
    assert report["tasks_without_winner"] == []
    workloads = read_manifest(job.schedules(tmp_path / "export") / MANIFEST).workloads
    assert workloads
    assert all(each.max_error is not None for each in workloads), "each was checked where it ran"
    records = trials(service.client, job)
    assert len(records) == TRIALS
    assert len({log_key(record) for record in records}) == TRIALS, "no candidate was measured twice"
    assert not report["untimed_tasks"] or bounds(records), "only what was disturbed has no time"
    devices = {record.device for record in records if record.outcome == "ok"}
    assert devices == {f"batch:{os.uname().nodename}-batch"}
    assert service.executions() == before, "the device of this machine ran nothing"


def test_a_job_of_devices_that_are_reached_has_no_batches(service: Service, networks: Path) -> None:
    job = service.client.submit(networks / "dense.onnx", trials=0)
    done = batch(service, "next", job.id, "-o", "never.zip")
    assert done.returncode > 0
    assert "batches need --option measurer=detached" in done.stderr
    assert not Path("never.zip").exists()


def test_results_of_another_service_are_refused(service: Service, tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    device = {"name": "n", "host_id": "h", "host_class": "c", "threads": 1, "tvm_version": "0.27"}
    header = {"format": FORMAT, "batch": "0123456789abcdef", "digest": "d", "device": device}
    results.write_text(json.dumps(header) + "\n")
    refused = batch(service, "take", results)
    assert refused.returncode > 0
    assert "this service did not make the batch" in refused.stderr
