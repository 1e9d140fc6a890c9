"""What others measured is enough: stock logs in, a model without a trial out, checked; and shared again."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mallorn.core.values.manifest import RECORDS
from mallorn.workers.device.detect_host import detect_target
from mallorn.workers.interfaces.model_compiler import ModelCompiler
from mallorn.workers.tvm.network.graph_recipes import recipe_for
from mallorn.workers.tvm.programs.parsed_program_cache import parse_module
from tests.fixtures.command_line import clean_environment, mallorn
from tests.fixtures.stock_logs import write_log

TIMEOUT_SEC = 600


@pytest.fixture
def taught(networks: Path, tmp_path: Path) -> Path:
    """A data directory that knows nothing but what stock wrote of the model's tasks."""
    target = detect_target()
    with ModelCompiler() as graphs:
        steps = recipe_for("tuned", target)
        tasks = graphs.extract(str(networks / "tiny.onnx"), target.text, steps, {}).tasks
    for task in tasks:
        write_log(tmp_path / "logs" / task.key[:8], parse_module(task.tir), dict(target.attrs), failed=0)
    imported = mallorn("dataset", "import", str(tmp_path / "logs"), "--data", str(tmp_path / "data"))
    assert imported.returncode == 0, imported.stderr
    return tmp_path / "data"


def tune(networks: Path, data: Path, out: Path, *options: str) -> dict[str, object]:
    """A job's report."""
    words = "tune", str(networks / "tiny.onnx"), "--data", str(data), "--out", str(out), *options
    done = mallorn(*words)
    assert done.returncode == 0, done.stderr
    return dict(json.loads((out / "report.json").read_text()))


@pytest.mark.slow
@pytest.mark.long
def test_stock_logs_answer_without_a_trial_and_the_whole_model_is_checked(
    networks: Path, taught: Path, tmp_path: Path
) -> None:
    report = tune(networks, taught, tmp_path / "answered", "--mode", "zero-shot")
    answers = report["unmeasured_schedules"]
    assert isinstance(answers, dict)
    assert {answer["source"] for answer in answers.values()} == {"same"}
    script = [sys.executable, str(tmp_path / "answered" / "apply.py"), str(networks / "tiny.onnx"), "--check"]
    checked = subprocess.run(
        script, env=clean_environment(), capture_output=True, text=True, timeout=TIMEOUT_SEC
    )
    assert checked.returncode == 0, checked.stderr
    shared = mallorn("schedules", "export", str(tmp_path / "shared"), "--data", str(taught))
    assert shared.returncode == 0, shared.stderr
    kept = [line for file in (tmp_path / "shared").rglob(RECORDS) for line in file.read_text().splitlines()]
    assert len(kept) == len(answers)
