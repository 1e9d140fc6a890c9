"""Mallorn tunes without mallorn-research; with its wheel, one command tunes as each system does."""

import json
import re
import shlex
import subprocess
import tomllib
import zipfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import onnx
import pytest

from mallorn import Client
from mallorn.core.installation import RESEARCH
from mallorn.core.registry import libraries_of
from mallorn.core.values.manifest import LIBRARY, RECORDS, read_manifest
from mallorn.core.version import VERSION
from mallorn.stack.data_directory import DataDir
from tests.fixtures.command_line import BRIEF_TIMINGS, ROOT, TIMEOUT_SEC, assert_refused, clean_environment
from tests.fixtures.processes import end
from tests.fixtures.service import START_SEC, dense_network, seldom
from tests.fixtures.waiting import wait_for
from tests.fixtures.wheel import copy_tracked, create_environment, pip, tracked

ROW: Final = re.compile(r"^\| (?P<system>[^|]+) \| (?P<options>[^|]+) \|", re.MULTILINE)
SPAN: Final = re.compile(r"`([^`]+)`")
RESOLVE: Final = """
from mallorn.core.registry import RESEARCH_NAMES, resolve
for seam, names in RESEARCH_NAMES.items():
    for name in names:
        print(resolve(seam, name).__module__)
"""
FREE_DIMENSION: Final = "n=1..4"  # stands for NAME=1..64 on the page
TRIALS: Final = 4
AT_ONCE: Final = 3  # commands that run side by side


@dataclass(frozen=True)
class Row:
    """A row of docs/systems.md: a system, and its options as they are typed, one by one."""

    system: str
    flags: Sequence[Sequence[str]]

    @property
    def commands(self) -> Iterator[list[str]]:
        """Yield the row's command, then one for each further value of an option that it names."""
        first: dict[str, Sequence[str]] = {}
        for flag in self.flags:
            first.setdefault(flag[0], flag)
        yield [word for flag in first.values() for word in flag]
        for flag in self.flags:
            if flag != first[flag[0]]:
                yield [word for each in (first | {flag[0]: flag}).values() for word in each]


def systems() -> list[Row]:
    """Return the rows of docs/systems.md; a command in a row is no option of a job."""
    rows = []
    for row in ROW.finditer((ROOT / "docs" / "systems.md").read_text()):
        flags: list[list[str]] = []
        is_option = False
        for span in SPAN.findall(row["options"]):
            words = shlex.split(span.replace("NAME=1..64", FREE_DIMENSION))
            is_option = words[0].startswith("--") or (is_option and len(words) == 1)
            if is_option and not words[0].startswith("--"):  # another value of the option before it
                words = [flags[-1][0], *words]
            for word in words if is_option else ():
                if word.startswith("--"):
                    flags.append([word])
                else:
                    flags[-1].append(word)
        rows.append(Row(row["system"].strip(), flags))
    return rows[1:]  # without the head of the table


@dataclass(frozen=True)
class Shell:
    """Types commands of one installation in a home of its own."""

    mallorn: Path
    home: Path

    @property
    def environment(self) -> dict[str, str]:
        return clean_environment(HOME=str(self.home), PYTHONPATH=str(BRIEF_TIMINGS))

    def type(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [str(self.mallorn), *words],
            cwd=self.home,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SEC,
        )

    def succeed(self, *words: str) -> str:
        """Type a command that ends well, and return what it printed."""
        result = self.type(*words)
        assert result.returncode == 0, f"{words}: {result.stderr}"
        return result.stdout

    @contextmanager
    def service(self) -> Iterator[Client]:
        """Run `mallorn up` on the data directory `data`, until the end of the block."""
        data = DataDir(self.home / "data")
        with (self.home / "up.log").open("wb") as log:
            command = [str(self.mallorn), "up", "--port", "0", "--data", str(data.path)]
            process = subprocess.Popen(command, env=self.environment, cwd=self.home, stdout=log, stderr=log)
            try:
                wait_for(lambda: data.read_stack() or process.poll() is not None, "the service", START_SEC)
                info = data.read_stack()
                assert info is not None, (self.home / "up.log").read_text()
                with Client(info.url) as client:
                    wait_for(seldom(client.devices), "its device")
                    yield client
            finally:
                end(process)


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


@pytest.fixture
def alone(installed_mallorn: Path, tmp_path: Path) -> Shell:
    """Where only Mallorn's wheel is installed."""
    (tmp_path / "tiny.onnx").write_bytes(dense_network())
    return Shell(installed_mallorn, tmp_path)


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
def test_without_the_wheel_a_name_says_how_to_install_it(alone: Shell, words: tuple[str, ...]) -> None:
    assert_refused(alone.type(*words), "needs mallorn-research", "pip install 'mallorn-research")


def test_without_the_wheel_help_lists_the_command(alone: Shell) -> None:
    assert "generate  Not available:" in alone.succeed("dataset", "--help")
    assert "pip install 'mallorn-research'" in alone.succeed("record", "--help")


def test_without_the_wheel_a_model_is_submitted_tuned_and_fetched(alone: Shell) -> None:
    with alone.service():
        place = ["--data", "data"]
        submitted = json.loads(alone.succeed("submit", "tiny.onnx", "--trials", "2", "--json", *place))["id"]
        alone.succeed("tune", "tiny.onnx", "--trials", "2", "--seed", "1", "--out", "tuned", *place)
        alone.succeed("watch", submitted, *place)
        alone.succeed("fetch", submitted, "--out", "fetched", *place)
    jobs = []
    for folder in (alone.home / "tuned", alone.home / "fetched"):
        manifest = read_manifest(folder / "manifest.json")
        assert manifest.measured_by == "tvm"
        [workload] = manifest.workloads
        assert workload.latency_us is not None
        assert workload.max_error is not None, "its result was checked"
        assert len((folder / RECORDS).read_text().splitlines()) == 1
        assert (folder / LIBRARY).stat().st_size > 0
        jobs.append(manifest.job)
    assert jobs[1] == submitted != jobs[0]


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
    env = Shell(both_installed, tmp_path).environment
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(module.startswith("mallorn_research.") for module in done.stdout.split())


def write_models(folder: Path) -> None:
    """Write a network of one task, and the same with a free dimension."""
    model = onnx.load_from_string(dense_network())
    onnx.save(model, str(folder / "tiny.onnx"))
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = FREE_DIMENSION.partition("=")[0]
    onnx.save(model, str(folder / "free.onnx"))


def budget_of(options: Sequence[str], recording: Path) -> list[str]:
    """Return how a row's job is measured: from the recording, on the simulated device, or not at all."""
    if "--mode" in options:
        return []
    if "measurer=replay" in options:
        return ["--trials", str(TRIALS), "-o", f"recording={recording}"]
    return ["--trials", str(TRIALS), "-o", "measurer=simulated", "-o", "simulated.device_sec=0"]


def missing_libraries(options: Sequence[str]) -> list[str]:
    """Return the libraries of a row, from extras of mallorn-research, that are not installed here."""
    needed = libraries_of(options[options.index("--cost-model") + 1]) if "--cost-model" in options else ()
    return [name for name in needed if name != RESEARCH and find_spec(name) is None]


def chosen(options: Sequence[str]) -> dict[str, Any]:
    """Return the job options that a row's words name."""
    flags: dict[str, Any] = {"contention": True} if "--contention" in options else {}
    for name, value in pairwise(options):
        if name == "--option":
            flags |= [value.split("=")]
        elif name == "--dynamic":
            flags["dynamic"] = {"n": [1, 4]}
        elif name.startswith("--") and not value.startswith("--"):
            flags[name.removeprefix("--").replace("-", "_")] = value
    return flags


def test_each_row_of_the_page_is_a_command() -> None:
    rows = {row.system: list(row.commands) for row in systems()}
    assert len(rows) > 25
    assert rows["Tuna (2021)"] == [
        ["--search", "es", "--cost-model", "tuna"],
        ["--search", "es", "--cost-model", "static"],
    ]
    assert rows["Kernel Tuner (2019), MITuna"] == [["--option", "measurer=replay"]]
    assert rows["MetaSchedule (NeurIPS 2022)"] == [[]]


def test_one_command_tunes_as_each_system_does(both_installed: Path, tmp_path: Path) -> None:
    shell, recording = Shell(both_installed, tmp_path), tmp_path / "recording.parquet"
    write_models(tmp_path)
    commands = [(row.system, options) for row in systems() for options in row.commands]

    def tune(number: int) -> str:
        """Type a row's command, and return what is wrong with its job."""
        system, options = commands[number]
        model = "free.onnx" if "--dynamic" in options else "tiny.onnx"
        measured = budget_of(options, recording)
        words = ["tune", model, *options, *measured, "--out", str(number), "--data", "data"]
        result = shell.type(*words)
        if missing := missing_libraries(options):
            assert_refused(result, f"needs {missing[0]}", f"mallorn-research[{missing[0]}]")
            return ""
        if result.returncode:
            return f"{system}: {shlex.join(words)}: {result.stderr}"
        manifest = read_manifest(tmp_path / str(number) / "manifest.json")
        status = client.job(manifest.job).status
        asked = {name: getattr(status.options, name) for name in chosen(options)}
        trials = 0 if "--mode" in options else TRIALS
        found = (asked, status.state, status.progress.trials, bool(manifest.workloads))
        return "" if found == (chosen(options), "done", trials, True) else f"{system}: {found}"

    with shell.service() as client, ThreadPoolExecutor(AT_ONCE) as threads:
        replayed = [number for number, (_, options) in enumerate(commands) if "measurer=replay" in options]
        assert replayed
        others = [number for number in range(len(commands)) if number not in replayed]
        wrong = [*threads.map(tune, others)]
        shell.succeed("record", "--data", "data", "--candidates", "2", "--out", str(recording))
        wrong += threads.map(tune, replayed)
    assert [problem for problem in wrong if problem] == []
