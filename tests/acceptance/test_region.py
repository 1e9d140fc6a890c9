"""A model with an operator that TVM lacks: the largest part without it is tuned, checked and delivered."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from mallorn import Job
from mallorn.core.values.finish_report import FinishReport
from mallorn.results.speedup import compare_whole_file
from mallorn_runtime import Session
from tests.acceptance.test_onnxruntime import PREPARE, packages
from tests.fixtures.command_line import mallorn
from tests.fixtures.onnx_network import onnx_network
from tests.fixtures.runtime_wheel import run_python
from tests.fixtures.service import JOB_SEC, Service

_ = packages  # the fixture
SIDE = 64
node = helper.make_node


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network of two products whose result ends in determinants."""
    rng = np.random.default_rng(0)
    weights = {name: rng.standard_normal((SIDE, SIDE)).astype("float32") / SIDE for name in ("v", "w")}
    nodes = [
        node("MatMul", ["x", "v"], ["a"]),
        node("Relu", ["a"], ["b"]),
        node("MatMul", ["b", "w"], ["c"]),
        node("Det", ["c"], ["y"], name="volume"),
    ]
    path = tmp_path_factory.mktemp("region") / "volume.onnx"
    onnx.save(onnx_network(nodes, {"x": ("n", SIDE, SIDE)}, {"y": None, "b": None}, **weights), str(path))
    return path


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("region") / "inputs.npz"
    np.savez(path, x=np.random.default_rng(3).standard_normal((2, SIDE, SIDE)).astype("float32"))
    return path


@pytest.fixture(scope="module")
def job(service: Service, model: Path, inputs: Path) -> Job:
    job = service.client.submit(model, trials=0, inputs=inputs, input_shapes={"x": [2, SIDE, SIDE]})
    return job.wait(JOB_SEC)


@pytest.fixture(scope="module")
def folder(job: Job, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `mallorn tune --out` leaves."""
    return job.fetch(tmp_path_factory.mktemp("region") / "out")


def test_check_and_the_job_say_what_stays_outside_and_why(service: Service, job: Job, model: Path) -> None:
    (warning,) = (each for each in job.body["warnings"] if each["source"] == "compiled in part")
    said = "3 of 4 nodes are compiled, and onnxruntime runs the rest. These cannot be compiled: 1 Det: "
    assert warning["message"].startswith(said)
    checked = mallorn("check", str(model), "--input-shape", f"x:2,{SIDE},{SIDE}")
    assert said in " ".join(checked.stdout.split())
    shown = mallorn("show", job.id, "--url", service.client.connection.url)
    assert "compiled in part" in shown.stdout + shown.stderr


def test_the_verdict_tells_of_the_whole_file(job: Job) -> None:
    report = job.body["report"]
    assert report["whole_file_us"] > 0
    assert report["error_vs_onnxruntime"] < 1e-4
    said = compare_whole_file(FinishReport.model_validate(report))  # which part is faster is the machine's
    assert said
    assert said in job.body["verdict"]["summary"]


def test_the_library_computes_the_tensors_between_the_parts(folder: Path, model: Path) -> None:
    x = np.random.default_rng(1).standard_normal((2, SIDE, SIDE)).astype("float32")
    outputs = Session(folder / "model.so").run({"x": x})
    assert set(outputs) == {"b", "c"}
    determinants, hidden = onnxruntime.InferenceSession(str(model)).run(None, {"x": x})
    np.testing.assert_allclose(outputs["b"], hidden, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.linalg.det(outputs["c"]), determinants, rtol=1e-2)


def test_commands_that_read_the_export_take_the_whole_model(
    folder: Path, model: Path, inputs: Path, tmp_path: Path
) -> None:
    library = tmp_path / "again.so"
    words = (
        "compile",
        str(model),
        "--schedules",
        str(folder),
        "-o",
        str(library),
        "--check",
        "--inputs",
        str(inputs),
    )
    compiled = mallorn(*words)
    assert compiled.returncode == 0, compiled.stderr
    assert [spec.name for spec in Session(library).outputs] == ["b", "c"]
    verified = mallorn("verify", str(model), "--schedules", str(folder))
    assert verified.returncode == 0, verified.stderr


def test_the_exported_script_cuts_the_same_part(folder: Path, model: Path, tmp_path: Path) -> None:
    library = tmp_path / "applied.so"
    words = [sys.executable, str(folder / "apply.py"), str(model), "-o", str(library), "--check"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    region = json.loads((folder / "manifest.json").read_text())["region"]
    assert [spec.name for spec in Session(library).outputs] == region["outputs"] == ["b", "c"]


SIZES_FIXED = (
    PREPARE
    + """
options = mallorn.session_options(sys.argv[2])
options.add_free_dimension_override_by_name("n", int(sys.argv[5]))
session = onnxruntime.InferenceSession(sys.argv[1], options)
with np.load(sys.argv[3]) as inputs:
    outputs = session.run(None, dict(inputs))
np.savez(sys.argv[4], *outputs)
"""
)


@pytest.mark.parametrize(("count", "is_compiled"), [(2, True), (3, False)])
def test_onnxruntime_runs_the_unchanged_file_with_the_library_where_the_sizes_are_those(
    folder: Path,
    model: Path,
    runtime_python: Path,
    packages: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    count: int,
    is_compiled: bool,
) -> None:
    x = np.random.default_rng(2).standard_normal((count, SIDE, SIDE)).astype("float32")
    np.savez(tmp_path / "inputs.npz", x=x)
    tuned = tmp_path / "tuned"
    ignored = shutil.ignore_patterns("report.json")  # it may say that onnxruntime was faster
    shutil.copytree(folder, tuned, ignore=ignored)
    words = model, tuned, tmp_path / "inputs.npz", tmp_path / "outputs.npz", count, packages
    capfd.readouterr()
    run_python(runtime_python, SIZES_FIXED, *map(str, words))
    assert ("Mallorn leaves" not in capfd.readouterr().err) == is_compiled
    with np.load(tmp_path / "outputs.npz") as outputs:
        determinants, hidden = outputs["arr_0"], outputs["arr_1"]
    expected = onnxruntime.InferenceSession(str(model)).run(None, {"x": x})
    np.testing.assert_allclose(determinants, expected[0], rtol=1e-2)
    np.testing.assert_allclose(hidden, expected[1], rtol=1e-4, atol=1e-5)
