"""mallorn-research: without its wheel a name says how to install it; with it, jobs name every system."""

import re
import subprocess
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from mallorn import Client
from mallorn.core.errors import MissingPackage
from mallorn.core.job_options import JobOptions
from mallorn.core.version import VERSION
from mallorn.stack.data_directory import DataDir
from tests.fixtures.command_line import BRIEF_TIMINGS, ROOT, TIMEOUT_SEC, assert_refused, clean_environment
from tests.fixtures.processes import end
from tests.fixtures.service import JOB_SEC, START_SEC, dense_network, seldom
from tests.fixtures.waiting import wait_for
from tests.fixtures.wheel import copy_tracked, create_environment, pip, tracked

Typed = Callable[..., "subprocess.CompletedProcess[str]"]
ROW: Final = re.compile(r"^\| (?P<system>[^|]+) \| (?P<options>[^|]+) \|", re.MULTILINE)
SPAN: Final = re.compile(r"`([^`]+)`")
RESOLVE: Final = """
from mallorn.core.registry import RESEARCH_NAMES, resolve
for seam, names in RESEARCH_NAMES.items():
    for name in names:
        print(resolve(seam, name).__module__)
"""
#: Systems whose searches run to their end, on the simulated device.
RUN: Final = ("Chameleon (ICLR 2020)", "LFBO (in Helion, 2026)")


def systems() -> dict[str, dict[str, Any]]:
    """Return the job options of each row of docs/systems.md."""
    rows = {}
    for row in ROW.finditer((ROOT / "docs" / "systems.md").read_text()):
        options: dict[str, Any] = {}
        for span in SPAN.findall(row["options"]):
            for flag, value in re.findall(r"--(?:option )?([a-z-]+)[ =]([a-z-]+)", span):
                options.setdefault(flag.replace("-", "_"), value)
        options = {name: value for name, value in options.items() if name in JobOptions.model_fields}
        if options.get("measurer") != "replay":  # which needs a recording
            rows[row["system"]] = options
    return {system: options for system, options in rows.items() if options}


@pytest.fixture(scope="module")
def research_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of mallorn-research, built from what git tracks."""
    source = tmp_path_factory.mktemp("research")
    copy_tracked(source, "research")
    pip("wheel", "--no-build-isolation", "--wheel-dir", str(source / "dist"), str(source / "research"))
    (built,) = (source / "dist").iterdir()
    return built


@pytest.fixture(scope="module")
def both_installed(wheel: Path, research_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of an environment with both wheels."""
    python = create_environment(tmp_path_factory.mktemp("both"))
    pip("install", "--ignore-installed", str(wheel), str(research_wheel), python=str(python))
    return python.with_name("mallorn")


def environment(home: Path) -> dict[str, str]:
    return clean_environment(HOME=str(home), PYTHONPATH=str(BRIEF_TIMINGS))


@pytest.fixture
def typed(installed_mallorn: Path, tmp_path: Path) -> Typed:
    """Type a command where only Mallorn's wheel is installed."""
    (tmp_path / "tiny.onnx").write_bytes(dense_network())

    def run(*words: str) -> "subprocess.CompletedProcess[str]":
        command, env = [str(installed_mallorn), *words], environment(tmp_path)
        return subprocess.run(
            command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=TIMEOUT_SEC
        )

    return run


@pytest.mark.parametrize(
    "words",
    [
        ("record", "tiny.onnx"),
        ("dataset", "generate", "--tasks", "2"),
        ("costmodels", "evaluate", "tlp", "--split", "by-task"),
        ("dataset", "import", "tiny.onnx", "--data", "."),
        ("tune", "tiny.onnx", "--search", "ppo", "--trials", "2"),
    ],
)
def test_without_the_wheel_a_name_says_how_to_install_it(typed: Typed, words: tuple[str, ...]) -> None:
    assert_refused(typed(*words), "needs mallorn-research", "pip install 'mallorn-research")


def test_without_the_wheel_help_lists_the_command(typed: Typed) -> None:
    assert "generate  Not available:" in typed("dataset", "--help").stdout
    assert "pip install 'mallorn-research'" in typed("record", "--help").stdout


def test_every_file_of_the_package_is_in_its_wheel(research_wheel: Path) -> None:
    with zipfile.ZipFile(research_wheel) as archive:
        installed = set(archive.namelist())
    assert {name.removeprefix("research/") for name in tracked("research/mallorn_research")} <= installed
    metadata = f"{research_wheel.name.partition('-py3')[0]}.dist-info"
    assert {name.partition("/")[0] for name in installed} == {"mallorn_research", metadata}


def test_both_packages_have_one_version() -> None:
    project = tomllib.loads((ROOT / "research" / "pyproject.toml").read_text())["project"]
    assert project["version"] == VERSION
    assert project["dependencies"] == [f"mallorn[server,worker]=={VERSION}"]


def test_with_the_wheel_every_name_is_an_entry_point(both_installed: Path, tmp_path: Path) -> None:
    command = [both_installed.with_name("python"), "-c", RESOLVE]
    done = subprocess.run(command, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(module.startswith("mallorn_research.") for module in done.stdout.split())


@pytest.fixture(scope="module")
def client(both_installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A service of that environment."""
    home = tmp_path_factory.mktemp("home")
    data = DataDir(home / "data")
    with (home / "up.log").open("wb") as log:
        command = [str(both_installed), "up", "--port", "0", "--data", str(data.path)]
        process = subprocess.Popen(command, env=environment(home), cwd=home, stdout=log, stderr=log)
        try:
            wait_for(lambda: data.read_stack() or process.poll() is not None, "the service", START_SEC)
            info = data.read_stack()
            assert info is not None, (home / "up.log").read_text()
            with Client(info.url) as client:
                wait_for(seldom(client.devices), "its device")
                yield client
        finally:
            end(process)


def test_a_job_names_each_system(client: Client, tmp_path: Path) -> None:
    (tmp_path / "tiny.onnx").write_bytes(dense_network())
    model = client.upload(tmp_path / "tiny.onnx").id
    assert len(systems()) > 20
    for system, options in systems().items():
        measured = {} if "mode" in options else {"measurer": "simulated"}
        try:
            job = client.submit(model, "local", 4 if measured else None, name=system, **options, **measured)
        except MissingPackage as error:
            if "mallorn-research[" not in error.hint:  # torch or FLAML, which not every host has
                raise
            continue
        if system in RUN:
            assert job.wait(JOB_SEC).status.progress.trials == 4
        else:
            job.cancel()
