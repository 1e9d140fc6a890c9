"""The script of `action.yml` calls `mallorn verify` with options that exist, and keeps its exit code."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.fixtures.answers import mallorn
from tests.fixtures.command_line import ROOT

ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
[VERIFY] = [step for step in ACTION["runs"]["steps"] if step.get("name") == "Verify"]
# Writes the words that it got, and the summary where it is told to; with `CODE=1`, it ends before that.
FAKE = """#!/bin/sh
printf '%s\\n' "$@" > words
[ "$CODE" = 1 ] && exit 1
while [ "$1" != --markdown ]; do shift; done
echo '### summary' > "$2"
exit $CODE
"""


def run(folder: Path, code: int, **inputs: str) -> tuple[int, list[str], str]:
    """Run the script with a made-up `mallorn`: its exit code, the words, and the job's summary."""
    (folder / "mallorn").write_text(FAKE)
    (folder / "mallorn").chmod(0o755)
    values = {name: entry.get("default", "") for name, entry in ACTION["inputs"].items()} | inputs
    env = {name: values[text.split("inputs.")[1].rstrip(" }")] for name, text in VERIFY["env"].items()}
    summary = folder / "summary"
    summary.touch()
    (folder / "temp").mkdir()
    subprocess.run(["git", "init", "-q", folder / "tuned"], check=True)
    who = ("-c", "user.email=a@example.org", "-c", "user.name=a")
    subprocess.run(
        ["git", "-C", folder / "tuned", *who, "commit", "-qm", "before", "--allow-empty"], check=True
    )
    more = {
        "RUNNER_TEMP": str(folder / "temp"),
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(folder),
        "GITHUB_STEP_SUMMARY": str(summary),
        "CODE": str(code),
    }
    words = ["bash", "-eo", "pipefail", "-c", VERIFY["run"]]
    result = subprocess.run(words, cwd=folder, env=env | more, check=False)
    return result.returncode, (folder / "words").read_text().splitlines(), summary.read_text()


@pytest.mark.parametrize("code", [0, 10, 11])
def test_the_script_ends_as_verify_does_and_shows_its_summary(code: int, tmp_path: Path) -> None:
    model = "a model $(touch evil).onnx"
    status, words, summary = run(tmp_path, code, model=model, schedules="tuned", baseline="HEAD")
    assert (status, summary) == (code, "### summary\n")
    assert words[:6] == [
        "verify",
        model,
        "--schedules",
        "tuned",
        "--baseline",
        f"{tmp_path}/temp/mallorn-baseline",
    ]
    assert not (tmp_path / "evil").exists()


def test_no_file_of_the_checkout_gets_into_the_summary(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of the runner")
    for name in ("verify.md", "mallorn-verify.md"):
        (tmp_path / name).symlink_to(tmp_path / "secret")
    status, _, summary = run(tmp_path, 1, model="none.onnx", schedules="tuned")
    assert (status, summary) == (1, "")
    assert (tmp_path / "secret").read_text() == "of the runner"


def test_every_option_exists_and_no_baseline_is_none(tmp_path: Path) -> None:
    _, words, _ = run(tmp_path, 0, model="m.onnx", schedules="tuned")
    assert "--baseline" not in words
    help_text = mallorn("verify", "--help").stdout
    options = [word for word in words if word.startswith("--")]
    assert options
    assert all(option in help_text for option in options)
