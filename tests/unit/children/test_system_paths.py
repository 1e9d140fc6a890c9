"""Behind walls a process reads every package on Python's path, wherever it lies, and nothing beside."""

import sys
from pathlib import Path

import pytest

from mallorn.workers.sandbox.system_paths import system_paths


def test_packages_beyond_the_prefix_come_with_the_libraries_that_they_link_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = tmp_path / "venv-of-another"  # whose name only begins like the prefix
    for name in ("numpy/__init__.py", "numpy.libs/libopenblas.so", "six.py", "notes/secret.txt"):
        file = packages / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    monkeypatch.setattr(sys, "path", [str(packages)])
    readable = {path for path, _ in system_paths()}
    assert {packages / name for name in ("numpy", "numpy.libs", "six.py")} <= readable
    assert packages / "notes" not in readable
    assert packages not in readable


def test_a_folder_that_pip_installed_into_is_read_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = tmp_path / "target"
    for name in ("google/protobuf/__init__.py", "protobuf-7.0.dist-info/METADATA"):
        file = packages / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    monkeypatch.setattr(sys, "path", [str(packages)])
    assert packages in {path for path, _ in system_paths()}
