"""The first day from its first line: `make setup` with every Python, cut off, and without a compiler."""

import os
import re
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.fixtures.command_line import ROOT
from tests.fixtures.newcomer import Newcomer, clone
from tests.fixtures.waiting import wait_for

RUN: Final = "make run TRIALS=4"
TOOLS: Final = re.compile(
    r"(.*-)?(cc|c\+\+|gcc|g\+\+|clang|clang\+\+|c89|c99|cpp|ld|lld|gold|zig|tcc)([-.].*)?"
)


def python(version: str) -> str:
    """A Python of this version; the row is left out, by its name, where this machine has none."""
    own = Path(os.environ.get("PYENV_ROOT", "/root/.pyenv"), "versions")
    named = [*own.glob(f"{version}.*/bin/python{version}"), shutil.which(f"python{version}")]
    for found in filter(None, named):
        if subprocess.run([found, "-c", "import ensurepip, venv"], capture_output=True).returncode == 0:
            return str(found)
    pytest.skip(f"Python {version} is not on this machine")


@pytest.mark.long
def test_python_3_12_where_path_and_home_have_spaces_and_the_umask_is_closed(tmp_path: Path) -> None:
    odd = {"LANG": "C", "LC_ALL": "C", "TERM": "dumb"}
    newcomer = Newcomer(clone(tmp_path / "a path" / "with spaces"), tmp_path / "a home", **odd)
    assert "verdict: " in newcomer.types(f"umask 077; {RUN} PYTHON='{python('3.12')}'")


@pytest.mark.long
def test_python_3_13_without_a_compiler_and_after_its_set_up_without_a_network(tmp_path: Path) -> None:
    newcomer = Newcomer(clone(tmp_path / "clone"), tmp_path / "home", PATH=str(without_compilers(tmp_path)))
    newcomer.types(f"! command -v cc gcc ld && make setup PYTHON='{python('3.13')}'")
    assert "ziglang cc" in (newcomer.root / ".venv" / "bin" / "cc").read_text()
    assert "verdict: " in newcomer.types(f"unshare --map-root-user --net sh -c 'ip link set lo up; {RUN}'")


def without_compilers(tmp_path: Path) -> Path:
    """What this machine has on its PATH, but for what compiles and links C."""
    tools = tmp_path / "tools"
    tools.mkdir()
    ours = str(Path(sys.prefix, "bin"))
    for folder in filter(lambda each: each != ours, os.environ["PATH"].split(os.pathsep)):
        for file in Path(folder).glob("*"):
            if not TOOLS.fullmatch(file.name) and not (tools / file.name).is_symlink():
                (tools / file.name).symlink_to(file)
    return tools


@pytest.mark.long
def test_python_3_11_whose_set_up_was_killed_twice(tmp_path: Path) -> None:
    newcomer = Newcomer(clone(tmp_path / "clone"), tmp_path / "home")
    packages = newcomer.root / ".venv" / "lib" / "python3.11" / "site-packages"
    setup = f"make setup PYTHON='{python('3.11')}'"
    for some in ("pip", "numpy"):
        with newcomer.typing(setup) as process:
            wait_for(lambda some=some: (packages / some).is_dir(), f"{some} to be there", 1200)
            os.killpg(process.pid, signal.SIGKILL)
    assert "verdict: " in newcomer.types(f"{setup} && {RUN}")


STUB = """#!/bin/sh
echo "$*" >> "$CALLS"
case "$*" in
  *"import sys"*) echo 3.12 ;;
  *"-m venv"*) mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
  *"install -r"*) [ ! -e "$CUT" ] || kill -9 $PPID ;;
esac
"""


@pytest.fixture
def stubbed(tmp_path: Path) -> Newcomer:
    """A checkout whose Python installs nothing, and whose page is not built."""
    root = tmp_path / "clone"
    (root / "requirements").mkdir(parents=True)
    (root / "research").mkdir()
    for name in ("Makefile", "requirements/lock.txt", "pyproject.toml", "research/pyproject.toml"):
        shutil.copy(ROOT / name, root / name)
    for file, text in {"stub": STUB, "services/dashboard/node.sh": "#!/bin/sh\n"}.items():
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(text)
        (root / file).chmod((root / file).stat().st_mode | stat.S_IXUSR)
    files = {"CALLS": str(tmp_path / "calls"), "CUT": str(tmp_path / "cut")}
    return Newcomer(root, tmp_path / "home", **files)


def test_a_set_up_that_was_cut_off_is_not_taken_for_one_and_is_typed_again(
    stubbed: Newcomer, tmp_path: Path
) -> None:
    (tmp_path / "cut").touch()
    assert "verdict" not in stubbed.types("make setup PYTHON=./stub", code=2)
    assert not (stubbed.root / ".venv" / "ready").exists()
    (tmp_path / "cut").unlink()
    stubbed.types("make setup PYTHON=./stub")
    assert (stubbed.root / ".venv" / "ready").exists()
    calls = (tmp_path / "calls").read_text()
    assert calls.count("install -r requirements/lock.txt") == 2
    stubbed.types("make setup PYTHON=./stub")
    assert (tmp_path / "calls").read_text() == calls, "what is ready is not installed again"


def test_an_environment_that_was_cut_off_before_it_had_pip_is_made_anew(
    stubbed: Newcomer, tmp_path: Path
) -> None:
    left = stubbed.root / ".venv" / "bin" / "python"
    left.parent.mkdir(parents=True)
    left.write_text("")
    (left.parent.parent / "half").touch()
    stubbed.types("make setup PYTHON=./stub")
    assert not (left.parent.parent / "half").exists()
    assert "-m venv .venv" in (tmp_path / "calls").read_text()


@pytest.mark.parametrize("version", ["3.10", "3.14"])
def test_another_python_is_refused_with_what_to_type(stubbed: Newcomer, version: str) -> None:
    stub = stubbed.root / "stub"
    stub.write_text(STUB.replace("3.12", version))
    said = stubbed.types("make setup PYTHON=./stub", code=2)
    assert f"Python 3.11, 3.12 or 3.13 is needed, ./stub is {version}." in said
    assert "make setup PYTHON=python3.11" in said
