"""Ctrl-C in the middle of `mallorn tune`, with a service of its own: it says how to go on, and that works."""

import json
import re
import shlex
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from stack.data_directory import DataDir
from tests.fixtures.command_line import clean_environment, mallorn, typed
from tests.fixtures.service import JOB_SEC, START_SEC, committed, executions, log_key, measured_well
from tests.fixtures.waiting import wait_for

TRIALS, MORE = 20, 4


def ran(data: DataDir) -> int:
    return len(executions(data)) if (data.logs / "executions.log").exists() else 0


@pytest.fixture
def interrupted(networks: Path, tmp_path: Path) -> str:
    """What a `tune` said that got Ctrl-C after some trials; it has ended."""
    # The policy is one that spends the whole budget, whatever it expects of it.
    words = ("tune", str(networks / "dense.onnx"), "--trials", str(TRIALS), "--policy", "round-robin")
    with subprocess.Popen(
        typed(*words, "--data", "data", "--out", "won"),
        env=clean_environment(),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Who runs the tests in the background of a shell hands down a SIGINT that is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        data = DataDir(tmp_path / "data")
        wait_for(lambda: ran(data) >= 6 or process.poll() is not None, "some trials", JOB_SEC)
        process.send_signal(signal.SIGINT)
        printed, said = process.communicate(timeout=START_SEC)
    assert process.returncode == 130, said
    assert printed == ""
    assert "Traceback" not in said
    return said


def test_what_ctrl_c_stopped_goes_on_as_it_says_and_measures_nothing_again(
    interrupted: str, tmp_path: Path
) -> None:
    data = DataDir(tmp_path / "data")
    wait_for(lambda: not data.is_locked(), "the end of its service")
    before = committed(data)
    assert 0 < len(before) < TRIALS
    (command,) = re.findall(r"Go on with   mallorn (.*)", interrupted)
    resumed = mallorn(*shlex.split(command), "--trials", f"+{MORE}", "--json", cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr

    job = json.loads(resumed.stdout)
    assert job["progress"]["trials"] == job["trials"] == TRIALS + MORE
    assert job["report"]["found"] == job["report"]["of"] > 0
    assert (tmp_path / "won" / "manifest.json").exists()
    assert len(committed(data)) == TRIALS + MORE
    log = executions(data)
    rows = Counter(log_key(record) for record in committed(data))
    assert {log[name] - rows[name] for name in measured_well(before)} == {0}, "one was repeated"
    assert set(measured_well(committed(data)).values()) == {1}
