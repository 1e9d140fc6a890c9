"""Shared libraries that packages need are looked for by loading them, in processes of their own."""

from pathlib import Path

import pytest

from mallorn.cli import host_checks
from mallorn.core.errors import HostFault

LIBRARY = "import ctypes; ctypes.CDLL({!r})"


@pytest.fixture
def needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package `needy` that runs what is written into the file."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(host_checks, "LINKED", ("needy", "absent"))
    return tmp_path / "needy.py"


@pytest.mark.parametrize(
    ("code", "reason", "hint"),
    [
        (LIBRARY.format("libgomp.so.1.not"), "lacks libgomp.so.1.not", "apt-file search libgomp.so.1.not"),
        ("raise OSError('libgomp.so.1: cannot open shared object file')", "libgomp.so.1", "install libgomp1"),
        ("raise ImportError('half of it is there')", "half of it is there", "python -c 'import needy'"),
        ("import os; os.kill(os.getpid(), 9)", "killed", "python -c 'import needy'"),
    ],
)
def test_what_is_missing_is_named_with_its_package(needs: Path, code: str, reason: str, hint: str) -> None:
    needs.write_text(code)
    with pytest.raises(HostFault, match="needy does not load: ") as caught:
        host_checks.check_shared_libraries()
    assert reason in caught.value.message
    assert hint in caught.value.hint


def test_packages_that_load_or_are_not_installed_are_well(needs: Path) -> None:
    assert host_checks.check_shared_libraries() == "none of needy, absent is installed"
    needs.write_text("")
    assert host_checks.check_shared_libraries() == "those of needy load"


def test_those_of_this_machine_load() -> None:
    assert "tvm, onnx, onnxruntime" in host_checks.check_shared_libraries()
