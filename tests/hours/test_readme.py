"""What README tells a newcomer to type works, in its order, and so does what that prints to be typed next."""

import os
import re
import shutil
from pathlib import Path

import pytest

from mallorn.stack.data_directory import DataDir
from tests.fixtures.command_line import ROOT
from tests.fixtures.newcomer import set_up
from tests.fixtures.service import committed, dense_network, executions, measured_well
from tests.fixtures.tutorials import Block, Checkout, blocks

TRIALS = re.compile(r"(--trials |trials=)\d+")
FEW = 4  # where a reader has the time for hundreds
# Spaces in all paths, no language, a terminal that knows nothing, files that only their owner may read.
ODD = {"LANG": "C", "LC_ALL": "C", "TERM": "dumb"}
UMASK = 0o077
BESIDES = ("Makefile", "README.md", "requirements", "research/pyproject.toml", "services/dashboard/node.sh")


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout in an odd place that is set up, with a small model of the reader's own."""
    place = tmp_path_factory.mktemp("a path")
    root = place / "with spaces"
    root.mkdir()
    made = Checkout(root, place / "and data")
    made.env |= ODD
    for name in BESIDES:
        (made.root / name).parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, made.root / name)
    set_up(made.root)
    made.env["TRIALS"] = str(FEW)
    (made.root / "model.onnx").write_bytes(dense_network())
    return made


@pytest.fixture(scope="module")
def said(clone: Checkout) -> str:
    """All that was printed when README was typed from top to bottom."""
    page = TRIALS.sub(rf"\g<1>{FEW}", (clone.root / "README.md").read_text())
    before = os.umask(UMASK)
    try:
        return "".join(clone.run(block) for block in blocks(page))
    finally:
        os.umask(before)


def test_readme_typed_in_order_tunes_and_exports(clone: Checkout, said: str) -> None:
    assert "Traceback" not in said
    assert (clone.root / "build" / "mlp-tuned" / "manifest.json").is_file()
    assert (clone.root / "tuned" / "manifest.json").is_file()


def test_a_later_job_measures_nothing_that_an_earlier_one_did(clone: Checkout, said: str) -> None:
    data = DataDir(Path(clone.env["MALLORN_DATA_DIR"]))
    assert len(executions(data)) > FEW, "the later jobs measured nothing"
    assert set(measured_well(committed(data)).values()) == {1}


def test_the_python_of_readme_reads_its_job_after_the_service_has_ended(said: str) -> None:
    assert "trials\nthe last round: " in said


def test_what_make_run_prints_to_be_typed_next_works(clone: Checkout, said: str) -> None:
    """The same commands for `tuned` differ in the names of files, and README has the check of `tuned`."""
    commands = re.findall(r"^ +((?:mallorn|python) .*build/mlp-tuned.*)$", said, re.MULTILINE)
    assert any("--schedules build/mlp-tuned" in command for command in commands)
    for command in dict.fromkeys(commands):
        assert "Traceback" not in clone.run(Block("sh", {}, command))
