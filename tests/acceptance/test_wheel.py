"""The wheel, installed outside of the checkout beside what it requires: the data that it reads came along."""

import json
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path
from typing import Final

import pytest

from cli.terminal.explain_error import OURS
from tests.fixtures.command_line import ROOT, clean_environment
from tests.fixtures.service import JOB_SEC

#: What builds the page, and the description of the API: no process of an installation reads them.
FOR_DEVELOPERS: Final = (
    *("services/dashboard/web/", "services/dashboard/node.sh", "services/dashboard/browser.sh"),
    *("services/dashboard/.gitignore", "services/openapi.json"),
)
#: A user's own modules, which have the names of ours and must not be imported.
NOT_OURS: Final = ("cli/__init__.py", "db.py", "workers/__init__.py", "services/__init__.py", "stack.py")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, built from what git tracks and the page where it is built."""
    source = tmp_path_factory.mktemp("source")
    for name in tracked("."):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, source / name)
    if (page := ROOT / "services" / "dashboard" / "static").is_dir():
        shutil.copytree(page, source / "services" / "dashboard" / "static", dirs_exist_ok=True)
    pip("wheel", "--no-build-isolation", "--wheel-dir", str(source / "dist"), str(source))
    (built,) = (source / "dist").iterdir()
    return built


@pytest.fixture(scope="module")
def mallorn(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of an environment with the wheel, and of other distributions those installed here."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, symlinks=True)
    site = next((folder / "lib").glob("python*/site-packages"))
    # Python searches a folder that a .pth file adds for modules alone, and finds no checkout by it.
    (site / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    pip("install", "--prefix", str(folder), "--ignore-installed", str(wheel))
    return folder / "bin" / "mallorn"


@pytest.fixture
def folder_of_namesakes(tmp_path: Path) -> Path:
    """A user's folder whose modules are named as ours are, and fail when somebody imports them."""
    for name in NOT_OURS:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"raise ImportError('a user wrote {name}')\n")
    return tmp_path


def tracked(*paths: str) -> list[str]:
    listed = subprocess.run(["git", "ls-files", *paths], cwd=ROOT, check=True, capture_output=True, text=True)
    return [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def pip(*words: str) -> None:
    command = [sys.executable, "-P", "-m", "pip", "--disable-pip-version-check", "--quiet"]
    offline = ["--no-deps", "--no-index"]
    subprocess.run([*command, words[0], *offline, *words[1:]], check=True, env=clean_environment())


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
    wanted = {name for name in tracked(*OURS) if not name.startswith(FOR_DEVELOPERS)}
    with zipfile.ZipFile(wheel) as archive:
        assert not wanted - set(archive.namelist())


def test_every_module_compiles(mallorn: Path) -> None:
    python = mallorn.with_name("python")
    site = next(mallorn.parents[1].glob("lib/python*/site-packages"))
    rooms = [str(site / room) for room in OURS]
    done = subprocess.run([python, "-m", "compileall", "-q", *rooms], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("words", [("--help",), ("check",)], ids=" ".join)
def test_a_command_imports_no_module_of_the_folder_where_it_is_typed(
    mallorn: Path, folder_of_namesakes: Path, words: tuple[str, ...]
) -> None:
    done = run(mallorn, *words, cwd=folder_of_namesakes)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "a user wrote" not in done.stdout + done.stderr


def test_its_service_starts_with_the_bundled_rows_and_answers_a_job(
    mallorn: Path, folder_of_namesakes: Path, networks: Path
) -> None:
    model = shutil.copy(networks / "tiny.onnx", folder_of_namesakes)
    done = run(mallorn, "tune", str(model), "--trials", "0", "--out", "tuned", cwd=folder_of_namesakes)
    assert done.returncode == 0, done.stderr
    assert (folder_of_namesakes / "tuned" / "manifest.json").is_file()
    told = run(mallorn, "dataset", "stats", "--json", cwd=folder_of_namesakes)
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout)["measurements"] > 0
