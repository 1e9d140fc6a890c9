"""Ctrl-C in the middle of `mallorn tune`, with a service of its own: it says how to go on, and that works."""

import json
import re
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from db.repositories.records import Records
from db.session import Database
from mallorn.core.values.dataset import Record
from stack.datadir import DataDir
from tests.fixtures.command_line import clean_environment, mallorn, typed
from tests.fixtures.service import JOB_SEC, START_SEC, executions, log_key
from tests.fixtures.waiting import wait_for

TRIALS, MORE = 40, 4


def ran(data: DataDir) -> int:
    return len(executions(data)) if (data.logs / "executions.log").exists() else 0


def committed(data: DataDir) -> list[Record]:
    """The trials that the database holds, with no service running."""
    database = Database(f"sqlite:///{data.path / 'mallorn.db'}")
    try:
        with database.session() as session:
            page = Records(session).page(None, limit=500)
    finally:
        database.dispose()
    return [record for record in page.items if record.kind == "trial"]


def names_of(records: list[Record]) -> set[str]:
    return {log_key(record) for record in records if record.outcome == "ok"}


@pytest.fixture
def interrupted(networks: Path, tmp_path: Path) -> str:
    """What a `tune` said that got Ctrl-C after some trials; it has ended."""
    # The policy is one that spends the whole budget, whatever it expects of it.
    words = ("tune", str(networks / "tiny.onnx"), "--trials", str(TRIALS), "--policy", "round-robin")
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
    assert {log[name] for name in names_of(before)} == {1}, "a committed measurement was repeated"
