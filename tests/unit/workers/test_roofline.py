"""What the machine allows, measured on it."""

import json

import pytest

from workers.host.roofline import memory_gbytes_per_sec
from workers.tvm import peak


@pytest.mark.parametrize("cores", [1, 3])
def test_a_machine_has_a_bandwidth(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.host.roofline.SECONDS", 0.05)
    monkeypatch.setattr("workers.host.roofline.COPIED_BYTES", 1 << 20)
    assert memory_gbytes_per_sec(cores) > 0


@pytest.mark.parametrize("cores", [1, 2])
def test_its_cores_have_a_peak(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.host.roofline.SECONDS", 0.05)
    monkeypatch.setattr(peak, "STEPS", 1 << 10)
    assert peak.peak_gflops(json.dumps({"kind": "llvm", "num-cores": cores}), cores) > 0
