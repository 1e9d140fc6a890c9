"""What the machine allows, measured on it."""

import pytest

from workers.roofline import measure_roof


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.roofline.SECONDS", 0.05)
    monkeypatch.setattr("workers.roofline.SIDE", 256)
    monkeypatch.setattr("workers.roofline.COPIED_BYTES", 1 << 20)


@pytest.mark.parametrize("cores", [1, 3])
def test_a_machine_has_a_peak_and_a_bandwidth(cores: int) -> None:
    roof = measure_roof(cores)
    assert roof.gflops > 0
    assert roof.gbytes_per_sec > 0
