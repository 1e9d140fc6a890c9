"""CUDA's compiler is found in NVIDIA's wheels first, then where the operator says, then on PATH."""

import sys
from pathlib import Path

import pytest

from mallorn.kinds.cuda.graph.cuda_toolkit import cuda_folders, find_nvcc


def toolkit(folder: Path) -> Path:
    (folder / "bin").mkdir(parents=True)
    for name in ("nvcc", "ptxas"):
        (folder / "bin" / name).touch(mode=0o755)
    return folder


@pytest.fixture(autouse=True)
def nothing_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])


def test_wheels_come_before_the_system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    named = toolkit(tmp_path / "named")
    monkeypatch.setenv("CUDA_HOME", str(named))
    assert find_nvcc() == str(named / "bin" / "nvcc")
    wheels = toolkit(tmp_path / "site" / "nvidia" / "cu13")
    assert find_nvcc() == str(wheels / "bin" / "nvcc")
    assert list(cuda_folders())[:2] == [wheels, named]


def test_a_link_on_path_leads_to_its_toolkit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real, links = toolkit(tmp_path / "real"), tmp_path / "links"
    links.mkdir()
    (links / "nvcc").symlink_to(real / "bin" / "nvcc")
    monkeypatch.setenv("PATH", str(links))
    assert next(cuda_folders()) == real


def test_a_folder_with_a_script_named_nvcc_is_no_toolkit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What children may read and run follows from it."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "nvcc").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert tmp_path not in cuda_folders()
