"""What goes wrong outside of Mallorn ends a command with a sentence and a next step, not with a traceback."""

import errno
import json
import sys
from pathlib import Path

import pytest

from mallorn.cli.terminal.explain_error import explain_error
from mallorn.core import installation
from mallorn.core.errors import ExitCode
from mallorn.core.installation import missing_package, pip_install_command
from tests.fixtures.answers import mallorn, refused


@pytest.fixture(autouse=True)
def data_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MALLORN_DATA_DIR", str(tmp_path / "data"))


@pytest.mark.parametrize("command", ["up", "serve", "tracker", "device"])
@pytest.mark.parametrize("port", ["99999", "-1"])
def test_a_port_that_cannot_be_is_refused_before_anything_starts(command: str, port: str) -> None:
    result = mallorn(command, "--port", port)
    assert result.exit_code == 2
    assert "'--port': Input should be" in result.stderr


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("MALLORN_PORT", "abc", "should be a valid integer"),
        ("MALLORN_PORT", "99999", "less than or equal to 65535"),
        ("MALLORN_BUILDERS", "-1", "greater than or equal to 0"),
        ("MALLORN_TRACKER", "nonsense", "write HOST:PORT"),
    ],
)
def test_a_setting_that_cannot_be_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, words: str
) -> None:
    monkeypatch.setenv(name, value)
    result = mallorn("serve")
    assert result.exit_code == ExitCode.USAGE
    assert result.stderr.startswith(f"error: the setting {name} cannot be {value!r}: ")
    assert words in result.stderr
    assert f"unset {name}" in result.stderr


def test_a_question_mark_in_the_data_path_is_refused_for_the_database_would_lie_elsewhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MALLORN_DATA_DIR", str(tmp_path / "what?" / "data"))
    refused(
        mallorn("up", "--port", "0"), "has a question mark", "next:  choose another place with --data DIR"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_database_that_is_no_url_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLORN_DATABASE_URL", "nonsense")
    refused(mallorn("migrate"), "'nonsense' is not the URL of a database")


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
