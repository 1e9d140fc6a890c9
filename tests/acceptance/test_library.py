"""The compiled model that a job stored, called without Mallorn: here, and on another CPU under qemu-user."""

import json
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from mallorn import Job
from tests.fixtures.command_line import mallorn
from tests.fixtures.other_cpu import OtherCpu
from tests.fixtures.service import JOB_SEC, Service

CALL = """
import numpy, sys, tvm
from tvm.runtime.vm import VirtualMachine
machine = VirtualMachine(tvm.runtime.load_module(sys.argv[1]), tvm.cpu())
output = machine["main"](tvm.runtime.tensor(numpy.load(sys.argv[2])))
numpy.save(sys.argv[3], output.numpy())
"""
SHAPE = 64, 784
LARGEST_ERROR = 1e-4


@pytest.fixture(scope="module")
def job(service: Service, networks: Path) -> Job:
    job = service.client.submit(networks / "mlp.onnx", trials=0)
    return job.wait(JOB_SEC)


@pytest.fixture(scope="module")
def folder(job: Job, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `mallorn tune --out` leaves."""
    return job.fetch(tmp_path_factory.mktemp("library") / "out")


@pytest.fixture
def numbers() -> "np.ndarray[tuple[int, ...], np.dtype[np.float32]]":
    return np.random.default_rng(0).random(SHAPE, "float32")


def error(output: object, networks: Path, numbers: object) -> float:
    """The largest difference from onnxruntime's outputs, as a share of the largest number."""
    expected = onnxruntime.InferenceSession(networks / "mlp.onnx").run(None, {"input": numbers})[0]
    difference = np.abs(np.asarray(output).reshape(expected.shape) - expected)
    return float(difference.max() / np.abs(expected).max())


def test_the_library_is_the_one_that_the_finish_checked(job: Job, folder: Path) -> None:
    library = job.body["report"]["library"]
    content = (folder / "model.so").read_bytes()
    assert (sha256(content).hexdigest(), len(content)) == (library["digest"], library["bytes"])
    assert json.loads((folder / "manifest.json").read_text())["library"] == library


def test_it_is_called_in_another_process_with_tvms_runtime_alone(
    folder: Path, networks: Path, numbers: object, tmp_path: Path
) -> None:
    np.save(tmp_path / "in.npy", np.asarray(numbers))
    words = [
        sys.executable,
        "-c",
        CALL,
        str(folder / "model.so"),
        str(tmp_path / "in.npy"),
        str(tmp_path / "out.npy"),
    ]
    env = {"PATH": os.environ["PATH"], "TVM_USE_RUNTIME_LIB": "1", "TVM_NUM_THREADS": "2"}
    done = subprocess.run(words, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert error(np.load(tmp_path / "out.npy"), networks, numbers) <= LARGEST_ERROR


def test_the_command_fetches_it_alone(service: Service, job: Job, folder: Path, tmp_path: Path) -> None:
    words = "fetch", job.id, "--library", "--out", str(tmp_path), "--url", service.client.connection.url
    done = mallorn(*words)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "model.so").read_bytes() == (folder / "model.so").read_bytes()
    assert [file.name for file in tmp_path.iterdir()] == ["model.so"]


def test_a_library_for_another_cpu_computes_the_same_there(
    other_cpu: OtherCpu, folder: Path, networks: Path, numbers: object, tmp_path: Path
) -> None:
    library = tmp_path / "aarch64.so"
    words = "compile", str(networks / "mlp.onnx"), "--schedules", str(folder), "-o", str(library)
    compiled = mallorn(*words, "--for", "aarch64")
    assert compiled.returncode == 0, compiled.stderr

    output = other_cpu.call(library, np.asarray(numbers), tmp_path)
    assert error(output.view("float32"), networks, numbers) <= LARGEST_ERROR
