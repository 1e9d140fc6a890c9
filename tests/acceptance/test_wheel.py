"""The wheel, installed outside of the checkout beside what it requires: the data that it reads came along."""

import json
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Final

import pytest

from benchmarks.house_tree import ROOMS
from tests.fixtures.command_line import ROOT, clean_environment
from tests.fixtures.service import JOB_SEC
from tests.fixtures.wheel import tracked

#: What builds the page, and the description of the API: no process of an installation reads them.
FOR_DEVELOPERS: Final = (
    *("services/dashboard/web/", "services/dashboard/node.sh", "services/dashboard/browser.sh"),
    *("services/dashboard/.gitignore", "services/openapi.json"),
)
#: A user's own modules, which have the names of ours and must not be imported.
NOT_OURS: Final = ("cli/__init__.py", "db.py", "workers/__init__.py", "services/__init__.py", "stack.py")


@pytest.fixture
def folder_of_namesakes(tmp_path: Path) -> Path:
    """A user's folder whose modules are named as ours are, and fail when somebody imports them."""
    for name in NOT_OURS:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"raise ImportError('a user wrote {name}')\n")
    return tmp_path


def run(mallorn: Path, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Type a command as a newcomer does: no setting of ours, and a home without a database."""
    environment = clean_environment(HOME=str(cwd / "home"))
    for name in ("PYTHONPATH", "MALLORN_SHIPPED"):
        environment.pop(name, None)
    (cwd / "home").mkdir(exist_ok=True)
    return subprocess.run(
        [str(mallorn), *words], cwd=cwd, env=environment, capture_output=True, text=True, timeout=JOB_SEC
    )


def test_every_file_of_the_packages_is_in_the_wheel(wheel: Path) -> None:
    names = [name for name in tracked(*ROOMS) if not (ROOT / name).is_symlink()]
    names = [name for name in names if not name.startswith(FOR_DEVELOPERS)]
    wanted = {f"mallorn/{name.removeprefix('mallorn/')}" for name in names}
    with zipfile.ZipFile(wheel) as archive:
        installed = set(archive.namelist())
    assert not wanted - installed
    metadata = f"{wheel.name.partition('-py3')[0]}.dist-info"
    assert {name.partition("/")[0] for name in installed} == {"mallorn", metadata}


def test_every_module_compiles(installed_mallorn: Path) -> None:
    python = installed_mallorn.with_name("python")
    site = next(installed_mallorn.parents[1].glob("lib/python*/site-packages"))
    command = [python, "-m", "compileall", "-q", str(site / "mallorn")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("words", [("--help",), ("check",)], ids=" ".join)
def test_a_command_imports_no_module_of_the_folder_where_it_is_typed(
    installed_mallorn: Path, folder_of_namesakes: Path, words: tuple[str, ...]
) -> None:
    done = run(installed_mallorn, *words, cwd=folder_of_namesakes)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "a user wrote" not in done.stdout + done.stderr


def test_its_service_starts_with_the_bundled_rows_and_answers_a_job(
    installed_mallorn: Path, folder_of_namesakes: Path, networks: Path
) -> None:
    model = shutil.copy(networks / "tiny.onnx", folder_of_namesakes)
    done = run(
        installed_mallorn, "tune", str(model), "--trials", "0", "--out", "tuned", cwd=folder_of_namesakes
    )
    assert done.returncode == 0, done.stderr
    assert (folder_of_namesakes / "tuned" / "manifest.json").is_file()
    told = run(installed_mallorn, "dataset", "stats", "--json", cwd=folder_of_namesakes)
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout)["measurements"] > 0
