"""Ctrl-C in the middle of `mallorn tune`, with a service of its own: it says how to go on, and that works."""

import json
import re
import shlex
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from mallorn.stack.data_directory import DataDir
from tests.fixtures.command_line import clean_environment, mallorn, typed
from tests.fixtures.service import JOB_SEC, START_SEC, committed, executions, log_key, measured_well
from tests.fixtures.waiting import wait_for

TRIALS, MORE = 32, 4


def has_measured_well(data: DataDir) -> bool:
    """Whether some candidates ran, and the time of one that nothing disturbed is committed."""
    return len(executions(data)) >= 6 and bool(measured_well(committed(data)))


def interrupted(tmp_path: Path, model: Path, *words: str, after: Callable[[str], bool]) -> str:
    """What a `tune` said that got Ctrl-C after something, which may be said; it has ended."""
    said = tmp_path / "said"
    with (
        said.open("w") as file,
        subprocess.Popen(
            typed("tune", str(model), *words, "--data", "data", "--out", "won"),
            env=clean_environment(),
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
            # Who runs the tests in the background of a shell hands down a SIGINT that is ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        ) as process,
    ):
        wait_for(lambda: after(said.read_text()) or process.poll() is not None, "the moment", JOB_SEC)
        process.send_signal(signal.SIGINT)
        printed, _ = process.communicate(timeout=START_SEC)
    words_said = said.read_text()
    assert process.returncode == 130, words_said
    assert printed == ""
    assert "Traceback" not in words_said
    return words_said


def test_what_ctrl_c_stopped_goes_on_as_it_says_and_measures_nothing_again(
    networks: Path, tmp_path: Path
) -> None:
    data = DataDir(tmp_path / "data")
    # The policy is one that spends the whole budget, whatever it expects of it.
    budget = "--trials", str(TRIALS), "--policy", "round-robin"
    said = interrupted(tmp_path, networks / "dense.onnx", *budget, after=lambda _: has_measured_well(data))
    wait_for(lambda: not data.is_locked(), "the end of its service")
    before = committed(data)
    assert 0 < len(before) < TRIALS
    (command,) = re.findall(r"Go on with   mallorn (.*)", said)
    resumed = mallorn(*shlex.split(command), "--trials", f"+{MORE}", "--json", cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr

    job = json.loads(resumed.stdout)
    assert job["progress"]["trials"] == job["trials"] == TRIALS + MORE
    assert job["report"]["schedule_count"] == job["report"]["workload_count"] > 0
    assert (tmp_path / "won" / "manifest.json").exists()
    assert len(committed(data)) == TRIALS + MORE
    log = executions(data)
    rows = Counter(log_key(record) for record in committed(data))
    assert {log[name] - rows[name] for name in measured_well(before)} == {0}, "one was repeated"
    assert set(measured_well(committed(data)).values()) == {1}


def test_a_job_without_trials_that_ctrl_c_stopped_leaves_a_first_export_that_works(
    networks: Path, tmp_path: Path
) -> None:
    said = interrupted(
        tmp_path, networks / "dense.onnx", "--trials", "0", after=lambda told: "first export" in told
    )
    assert re.search(r"^first export after \d+ s, \d+\.\d\d of onnxruntime: won$", said, re.MULTILINE)
    (command,) = re.findall(
        r"^won holds a version that works. Check it with   python (.*)", said, re.MULTILINE
    )
    checked = subprocess.run(
        [sys.executable, *shlex.split(command)], cwd=tmp_path, capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stderr
    assert json.loads(checked.stdout)["relative_error"] < 1e-4
