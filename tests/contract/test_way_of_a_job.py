"""ARCHITECTURE.md draws the way of a job through the workers: all files of it, and no others."""

import re
from pathlib import Path
from typing import Final

import pytest

from benchmarks.house_calls import reached
from benchmarks.house_tree import Tree

ROOT: Final = Path(__file__).parents[2]
STAGES: Final = {"I": "_import", "R": "_measure", "F": "_finish"}
#: What `do_work` calls before and after each of them.
EACH: Final = {
    "mallorn.workers.process.leased_work": {"leased_work"},
    "mallorn.workers.process.worker_runtime": {"runtime"},
}
LINE: Final = re.compile(r"^(?:([I.][R.][F.])  \S.*?|) {2,}(workers/.*\.py)$", re.MULTILINE)


@pytest.fixture(scope="module")
def drawn() -> dict[str, str]:
    """Files of the drawing, each with the letters of its stages."""
    found: dict[str, str] = {}
    stages = ""
    for letters, files in LINE.findall((ROOT / "ARCHITECTURE.md").read_text()):
        stages = letters or stages
        found |= dict.fromkeys(files.split(), stages)
    return found


@pytest.fixture(scope="module")
def passed() -> dict[str, str]:
    """Files of the workers that a job passes by the calls in the code, with the letters of its stages."""
    tree = Tree(ROOT)
    found: dict[str, str] = {}
    for letter, start in STAGES.items():
        for module in sorted(reached(tree, EACH | {"mallorn.workers.celery_tasks": {start}})):
            if (file := tree.file(module)).startswith("workers/"):
                found[file] = found.get(file, "") + letter
    return found


def test_the_way_of_a_job_is_drawn_whole(drawn: dict[str, str], passed: dict[str, str]) -> None:
    missing, gone = passed.keys() - drawn.keys(), drawn.keys() - passed.keys()
    assert passed
    assert not missing, f"not in ARCHITECTURE.md's drawing: {', '.join(sorted(missing))}"
    assert not gone, f"in ARCHITECTURE.md's drawing, and on no job's way: {', '.join(sorted(gone))}"


def test_files_stand_in_the_lines_of_their_stages(drawn: dict[str, str], passed: dict[str, str]) -> None:
    wrong = {
        file: letters for file, letters in passed.items() if not set(letters) <= set(drawn.get(file, ""))
    }
    assert wrong == {}
