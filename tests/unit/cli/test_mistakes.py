"""What goes wrong outside of Mallorn ends a command with a sentence and a next step, not with a traceback."""

import errno
import json
import sys
from pathlib import Path

import pytest

from mallorn.cli.terminal.explain_error import explain_error
from mallorn.core import installation
from mallorn.core.installation import missing_package, pip_install_command
from tests.fixtures.answers import Shell
from tests.fixtures.kept import Kept


@pytest.fixture(autouse=True)
def data_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MALLORN_DATA_DIR", str(tmp_path / "data"))


COMMANDS = [f"{name} --port {port}" for name in ("up", "serve", "tracker", "device") for port in (99999, -1)]
SETTINGS = [
    ("MALLORN_PORT", "abc"),
    ("MALLORN_PORT", "99999"),
    ("MALLORN_BUILDERS", "-1"),
    ("MALLORN_TRACKER", "nonsense"),
]


def test_what_cannot_be_is_refused_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, shell: Shell, kept: Kept
) -> None:
    shell("a port", *COMMANDS)
    for name, value in SETTINGS:
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            shell(f"{name}={value}", "serve")
    with monkeypatch.context() as patch:
        patch.setenv("MALLORN_DATABASE_URL", "nonsense")
        shell("a database that is no URL", "migrate")
    monkeypatch.setenv("MALLORN_DATA_DIR", str(tmp_path / "what?" / "data"))
    shell("a question mark in the data path", "up --port 0")
    kept("mistakes", shell.texts)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_a_sentence() -> None:
    error = explain_error(OSError(errno.ENOSPC, "No space left on device", "tuned/report.json"))
    assert error is not None
    assert (error.message, error.hint) == ("cannot use tuned/report.json: No space left on device", "df -h")


@pytest.mark.parametrize(
    "error", [OSError("of our own"), ModuleNotFoundError(name="mallorn.workers.gone"), KeyError()]
)
def test_a_fault_of_ours_keeps_its_traceback(error: Exception) -> None:
    assert explain_error(error) is None


def test_what_runs_on_linux_only_says_so_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    error = explain_error(ModuleNotFoundError(name="tvm"))
    assert error is not None
    assert error.message == "this needs tvm, which is not installed; it runs on Linux only"
    assert error.hint == "set MALLORN_URL to a service on a Linux machine"
    assert "pip install" in missing_package("DataFrames need pandas", "notebook").hint


def test_in_a_checkout_its_own_path_is_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    root = Path(installation.__file__).parents[2]
    assert pip_install_command("worker") == f"pip install '{root}[worker]'"
    monkeypatch.chdir(root)
    assert pip_install_command("worker") == "pip install '.[worker]'"
    assert pip_install_command("", installation.RESEARCH) == "pip install './research'"


@pytest.mark.parametrize(
    ("origin", "line"),
    [
        ({"url": "https://host/m.whl"}, "pip install 'mallorn[worker] @ https://host/m.whl'"),
        (
            {"url": "https://host/m", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            "pip install 'mallorn[worker] @ git+https://host/m@abc'",
        ),
        ({"url": "file:///is/gone", "dir_info": {}}, "pip install '.[worker]'   (in a checkout of Mallorn)"),
        (None, "pip install 'mallorn[worker]'"),
    ],
)
def test_elsewhere_it_is_where_pip_found_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, origin: dict[str, object] | None, line: str
) -> None:
    class Installed:
        def read_text(self, _name: str) -> str | None:
            return json.dumps(origin) if origin else None

    monkeypatch.setattr(installation, "IMPORT_ROOT", tmp_path)
    monkeypatch.setattr(installation.Distribution, "from_name", lambda _name: Installed())
    assert pip_install_command("worker") == line
