"""Batches on a machine with GPUs: the first visible one times, as a device of its own would."""

import os
from pathlib import Path
from typing import Any

import pytest

from mallorn.core.targets import parse_target
from mallorn.workers.detached.batch_record import read_results
from mallorn.workers.detached.run_batch import BatchRefused, run_calls
from tests.fixtures.batches import call, lines, write_batch, write_manifest
from tests.fixtures.made_up_gpus import UUIDS, MadeUpGpus

HOT = 0x20


class GpuBatch:
    """A batch with the kernel of the made-up GPUs, and where its results go."""

    def __init__(self, gpus: MadeUpGpus, folder: Path) -> None:
        self.folder, self.results = folder / "batch", folder / "results.jsonl"
        write_batch(self.folder, [])
        (self.folder / "kernel.so").write_bytes(gpus.library().read_bytes())

    def run(self, arch: str = "sm_80", **changes: Any) -> int:
        target = parse_target({"kind": "cuda", "arch": arch})
        needs = {"target": target.text, "machine": os.uname().machine, "flags": {}}
        write_manifest(self.folder, [call("a", "kernel", target=target, **changes)], needs=needs)
        return run_calls(self.folder, self.results)


@pytest.fixture
def batch(made_up_gpus: MadeUpGpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GpuBatch:
    for name, value in (made_up_gpus.env | {"CUDA_VISIBLE_DEVICES": UUIDS[1]}).items():
        monkeypatch.setenv(name, value)
    return GpuBatch(made_up_gpus, tmp_path)


@pytest.mark.parametrize("cold", [False, True])
def test_a_time_of_a_hot_gpu_comes_home_as_a_bound(
    batch: GpuBatch, made_up_gpus: MadeUpGpus, cold: bool
) -> None:
    made_up_gpus.fail("nvml", HOT)
    assert batch.run(cold=cold) == 0
    told = read_results(batch.results).calls["a"]
    assert (told.outcome, told.disturbed) == ("ok", 0.5), told.error
    assert told.disturbance is not None
    assert (told.disturbance.upper_bounds, told.disturbance.gpu) == (
        1,
        "heat slowed the GPU down (990 of 1980 MHz, 87 °C, 412 W)",
    )


def test_the_device_is_of_the_class_of_its_gpu_and_driver(batch: GpuBatch) -> None:
    batch.run()
    device = next(line["device"] for line in lines(batch.results) if "device" in line)
    assert device["accelerator"] == "Made-up GPU 1"
    assert "+Made-up-GPU-1+" in device["host_class"]


def test_device_code_for_another_gpu_is_refused(batch: GpuBatch) -> None:
    with pytest.raises(BatchRefused, match="is for sm_90a, its GPU is sm_80"):
        batch.run("sm_90a")
    assert not [line for line in lines(batch.results) if "key" in line]


def test_without_a_driver_the_batch_is_refused_in_a_sentence(
    batch: GpuBatch, made_up_gpus: MadeUpGpus
) -> None:
    made_up_gpus.fail("init", 999)
    with pytest.raises(BatchRefused, match="CUDA's driver does not work: unknown error"):
        batch.run()
