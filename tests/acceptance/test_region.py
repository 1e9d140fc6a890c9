"""A model with an operator that TVM lacks: the largest part without it is tuned, checked and delivered."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from mallorn import Job
from mallorn_runtime import Session
from tests.fixtures.command_line import mallorn
from tests.fixtures.onnx_network import onnx_network
from tests.fixtures.service import JOB_SEC, Service

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
def job(service: Service, model: Path) -> Job:
    job = service.client.submit(model, trials=0, input_shapes={"x": [2, SIDE, SIDE]})
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


def test_the_library_computes_the_tensors_between_the_parts(folder: Path, model: Path) -> None:
    x = np.random.default_rng(1).standard_normal((2, SIDE, SIDE)).astype("float32")
    outputs = Session(folder / "model.so").run({"x": x})
    assert set(outputs) == {"b", "c"}
    determinants, hidden = onnxruntime.InferenceSession(str(model)).run(None, {"x": x})
    np.testing.assert_allclose(outputs["b"], hidden, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.linalg.det(outputs["c"]), determinants, rtol=1e-2)


def test_commands_that_read_the_export_take_the_whole_model(
    folder: Path, model: Path, tmp_path: Path
) -> None:
    library = tmp_path / "again.so"
    words = "compile", str(model), "--schedules", str(folder), "-o", str(library), "--check"
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
