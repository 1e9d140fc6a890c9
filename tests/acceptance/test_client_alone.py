"""What is installed without TVM, as on a Mac: the client, its command line and what they require."""

import json
import shutil
import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement

from tests.fixtures.command_line import ROOT, clean_environment
from tests.fixtures.coordinator import Coordinator
from tests.fixtures.models import onnx_bytes
from tests.fixtures.wheel import copy_distribution

LEFT_OUT: Final = shutil.ignore_patterns("node_modules", "__pycache__")
TARGET: Final = '{"kind":"llvm","num-cores":2}'


def required(names: list[str]) -> Iterator[Distribution]:
    """What these requirements come to, each once, as it is installed here."""
    seen: set[str] = set()
    while names:
        wanted = Requirement(names.pop())
        if wanted.name in seen or (wanted.marker and not wanted.marker.evaluate({"extra": ""})):
            continue
        seen.add(wanted.name)
        found = distribution(wanted.name)
        names += found.requires or []
        yield found


def is_for_macs(line: str) -> bool:
    marker = Requirement(line).marker
    return marker is None or marker.evaluate({"sys_platform": "darwin"})


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with what `pip install .` brings on a Mac; PyPI is not asked."""
    folder = tmp_path_factory.mktemp("alone")
    venv.create(folder / "venv", symlinks=True)
    site = next((folder / "venv" / "lib").glob("python*/site-packages"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for found in required([line for line in project["dependencies"] if is_for_macs(line)]):
        copy_distribution(found, site)
    source = folder / "source"
    shutil.copytree(ROOT / "mallorn", source / "mallorn", ignore=LEFT_OUT)
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copyfile(ROOT / file, source / file)
    offline = "--no-deps", "--no-index", "--no-build-isolation", "--target", str(site)
    command = [
        sys.executable,
        "-P",
        "-m",
        "pip",
        "--disable-pip-version-check",
        "install",
        "--quiet",
        *offline,
    ]
    subprocess.run([*command, str(source)], check=True, env=clean_environment())
    return folder / "venv" / "bin" / "python"


def run(python: Path, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in clean_environment().items() if name != "PYTHONPATH"}
    command = [str(python), "-P", "-m", "mallorn", *words]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_it_submits_a_model_to_a_coordinator(python: Path, coordinator: Coordinator, tmp_path: Path) -> None:
    (tmp_path / "tiny.onnx").write_bytes(onnx_bytes())
    words = "submit", "tiny.onnx", "--target", TARGET, "--trials", "8", "--json", "--url", coordinator.url
    result = run(python, *words, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    (job,) = coordinator.http.get("/jobs").json()["items"]
    assert json.loads(result.stdout)["id"] == job["id"]
    assert (job["name"], job["trials"]) == ("tiny", 8)


@pytest.mark.parametrize("module", ["tvm", "sqlalchemy", "fastapi", "celery", "numpy", "onnx"])
def test_nothing_heavy_came_with_it(python: Path, module: str, tmp_path: Path) -> None:
    program = f"import importlib.util as util; print(util.find_spec({module!r}))"
    found = subprocess.run([python, "-P", "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert found.stdout == "None\n", found.stderr


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (("serve",), "server"),
        (("tracker",), "server,worker"),
        (("up", "--data", "here"), "server,worker"),
        (("compile", "tiny.onnx", "--schedules", "tuned", "-o", "x.so"), "worker"),
        (("bench", "tiny.onnx", "--schedules", "tuned"), "worker"),
        (("profile", "tiny.onnx", "--schedules", "tuned"), "worker"),
        (("dataset", "stats", "--data", "here"), "server"),
    ],
)
def test_what_needs_more_says_what_to_install_and_from_where(
    python: Path, tmp_path: Path, words: tuple[str, ...], extra: str
) -> None:
    (tmp_path / "tiny.onnx").write_bytes(b"nobody gets as far as reading it")
    (tmp_path / "tuned").mkdir()
    manifest = {"target": TARGET, "recipe": {"name": "plain", "before": [], "after": []}}
    (tmp_path / "tuned" / "manifest.json").write_text(json.dumps(manifest))
    result = run(python, *words, cwd=tmp_path)
    assert result.returncode > 0
    assert "Traceback" not in result.stderr
    source = (python.parents[2] / "source").as_uri()
    assert f"pip install 'mallorn[{extra}] @ {source}'" in result.stderr
