"""Jobs that answer from what is known, through the whole service: stock TVM takes what they hand out."""

from pathlib import Path

import pytest

from mallorn.core.values.manifest import MANIFEST, read_manifest
from tests.acceptance.test_tune import RELATIVE_ERROR, apply
from tests.fixtures.command_line import assert_refused, mallorn
from tests.fixtures.service import JOB_SEC, Service, tiny_network, trials

MEASURED = 8


@pytest.fixture(scope="module")
def unknown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network with tasks that no other job has."""
    file = tmp_path_factory.mktemp("unknown") / "unknown.onnx"
    file.write_bytes(tiny_network(size=12, classes=12))
    return file


@pytest.fixture(scope="module")
def url(service: Service) -> str:
    return service.client.connection.url


@pytest.mark.parametrize("mode", ["zero-shot", "one-shot"])
def test_stock_tvm_takes_what_is_handed_out(url: str, unknown: Path, tmp_path: Path, mode: str) -> None:
    tuned = tmp_path / "tuned"
    result = mallorn("tune", str(unknown), "--mode", mode, "--out", str(tuned), MALLORN_URL=url)
    assert result.returncode == 0, result.stderr
    assert read_manifest(tuned / MANIFEST).mode == mode
    answer = apply(tuned, unknown)
    assert answer["workloads_found"] == answer["workloads"] > 0
    assert answer["relative_error"] < RELATIVE_ERROR


def test_the_report_says_what_answered_and_what_was_not_done(service: Service, tmp_path: Path) -> None:
    unasked = tmp_path / "unasked.onnx"
    unasked.write_bytes(tiny_network(size=10, classes=14))
    job = service.client.submit(unasked, mode="zero-shot")
    job.wait(JOB_SEC)
    report = job.body["report"]
    assert {answer["source"] for answer in report["unmeasured_schedules"].values()} == {"constructed"}
    assert not any(answer["is_verified"] for answer in report["unmeasured_schedules"].values())
    assert report["latency_us"] == {}
    assert job.progress().trials == 0
    assert trials(service.client, job) == []


def test_what_a_search_measured_answers_later_jobs(service: Service, networks: Path) -> None:
    search = service.client.submit(networks / "dense.onnx", trials=MEASURED)
    search.wait(JOB_SEC)
    later = service.client.submit(networks / "dense.onnx", mode="one-shot")
    later.wait(JOB_SEC)
    report = later.body["report"]
    assert {answer["source"] for answer in report["unmeasured_schedules"].values()} == {"same"}
    assert all(answer["is_verified"] for answer in report["unmeasured_schedules"].values())
    assert report["latency_us"]["tuned"]["median"] > 0
    assert report["error_vs_onnxruntime"] < RELATIVE_ERROR


def test_trials_are_for_jobs_that_measure(url: str, networks: Path, tmp_path: Path) -> None:
    asked = "tune", str(networks / "tiny.onnx"), "--mode", "zero-shot", "--trials", "8"
    result = mallorn(*asked, cwd=tmp_path, MALLORN_URL=url)
    assert_refused(result, "--trials 8 is for jobs that measure candidates", "zero-shot")
