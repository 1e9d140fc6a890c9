"""The benchmark of a loaded coordinator runs to its end, and counts what went wrong."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.command_line import ROOT, TIMEOUT_SEC, clean_environment

SMALL = {"jobs": 3, "tasks": 2, "devices": 2, "watchers": 2, "visitors": 1, "period-sec": 1, "pause-sec": 0.2}


@pytest.mark.long
def test_a_small_load_is_answered_without_an_error(tmp_path: Path) -> None:
    options = [f"--{name}={value}" for name, value in SMALL.items()]
    raw = tmp_path / "load.json"
    command = [sys.executable, "-m", "benchmarks.load", *options, "--minutes=0.15", f"--json={raw}"]
    environment = clean_environment() | {"PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_SEC
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1] == "errors: 0", ran.stdout
    told = json.loads(raw.read_text())
    assert told["headline"] == 0
    assert set(told["seconds"]) == {"event", "list", "show", "submit", "tasks"}
    assert told["seconds"]["submit"]["count"] == SMALL["jobs"]
