"""What part 1 of the GPU benchmark asserts of a GPU, tried with made-up ones that compute nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.made_up_gpus import UUIDS, MadeUpGpus

HOT, QUIET = 0x20, 0x04


def asserted(gpus: MadeUpGpus, name: str, kernels: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.gpu.assertions", name, "cuda", str(kernels)]
    path = os.pathsep.join([gpus.env["PYTHONPATH"], os.getcwd()])
    env = os.environ | gpus.env | {"PYTHONPATH": path}
    told = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=True).stdout
    found: dict[str, Any] = json.loads(told.strip().splitlines()[-1])
    return found


def test_a_gpu_is_named_as_the_driver_names_it(made_up_gpus: MadeUpGpus, tmp_path: Path) -> None:
    found = asserted(made_up_gpus, "device identity", tmp_path)
    assert (found["ok"], found["uuid"], found["name"]) == (True, UUIDS[0], "Made-up GPU 0")


@pytest.mark.parametrize(("reasons", "share"), [(HOT, 0.5), (QUIET, 0.0)])
def test_nvml_answers_behind_the_walls(
    made_up_gpus: MadeUpGpus, tmp_path: Path, reasons: int, share: float
) -> None:
    made_up_gpus.fail("nvml", reasons)
    found = asserted(made_up_gpus, "NVML answers behind the walls", tmp_path)
    assert (found["ok"], found["load"]["share"]) == (True, share), found


def test_without_nvml_the_assertion_fails(made_up_gpus: MadeUpGpus, tmp_path: Path) -> None:
    found = asserted(made_up_gpus, "NVML answers behind the walls", tmp_path)
    assert (found["ok"], found["error"]) == (
        False,
        "AssertionError: NVML does not answer behind the walls",
    )


def test_the_driver_is_asked_in_forks_alone(made_up_gpus: MadeUpGpus, tmp_path: Path) -> None:
    found = asserted(made_up_gpus, "driver stays out of the device", tmp_path)
    assert (found["ok"], found["gpus"]) == (True, 2), found


def test_the_question_for_a_fault_has_its_seconds(made_up_gpus: MadeUpGpus, tmp_path: Path) -> None:
    found = asserted(made_up_gpus, "gpu_fault answers", tmp_path)
    assert found["ok"], found
    assert len(found["took_sec_each"]) == 3
    made_up_gpus.fail("init", 999)
    assert "CUDA's driver does not work" in asserted(made_up_gpus, "gpu_fault answers", tmp_path)["error"]
