"""What the figures of a tree count, on a made-up one."""

from pathlib import Path

import pytest

from benchmarks.house import figures, knots, names_twice, raw
from benchmarks.house_names import stale_names
from benchmarks.house_tree import Tree

FILES = {
    "mallorn/http.py": "def send(body: dict[str, Any]):\n    return body\n",
    "mallorn/commands/tune.py": "rows: list[Mapping[str, Any]] = []\n",
    "db/migrations/versions/0001.py": "class Slot: ...\n",
    "workers/round/values.py": "from mallorn.searchers.values import Result\n\n\nclass Slot: ...\n",
    "searchers/values.py": "from mallorn.workers.round.deep.values import Slot\n",
    "workers/round/deep/values.py": "from mallorn.workers.round.values import Held\n\n\nclass Slot: ...\n",
}
# What a file may name, for the file beside it, and names that it must not use.
NAMES = '''
"""Asks `send`, which takes `body`, for ``reindex``; `Job.state` is `cost-model` or `first_guess`."""

import tvm
from sqlalchemy import select

LIMIT = 1
OPTIONS = {"cost-model": "first_guess"}


class Job:
    state: str

    def __init__(self, owner):
        self.age = self.waits(owner)

    def waits(self, owner):
        """Return `owner` of `age` under `LIMIT` by `select` and `cache_write`; raises ValueError."""
        local = tvm.cache_write(owner)
        raise ValueError(f"{local}: call waits() first")
'''


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return write(tmp_path, FILES)


def write(root: Path, files: dict[str, str]) -> Tree:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.lstrip())
    return Tree(root)


def test_loose_lines_are_those_with_a_dict_or_mapping_of_any(tree: Tree) -> None:
    assert figures(tree)["loose lines"].places == ["mallorn/commands/tune.py:1", "mallorn/http.py:1"]


def test_folders_that_import_each_other_around_a_corner_are_one_knot() -> None:
    assert knots({"a": "b", "b": "cd", "c": "a", "d": ""}) == [{"a", "b", "c"}]


def test_the_imports_of_a_knot_are_its_places(tree: Tree) -> None:
    knot = figures(tree)["knots"]
    assert knot.value == 1
    assert len(knot.places) == 3


def test_migrations_are_left_out_of_names_that_are_given_twice(tree: Tree) -> None:
    assert names_twice(tree) == ["Slot: workers/round/deep/values.py, workers/round/values.py"]


def test_names_that_the_product_defines_are_not_stale(tmp_path: Path) -> None:
    http = {"mallorn/http.py": "def send(body):\n    return body\n"}
    assert stale_names(write(tmp_path, http | {"db/rows.py": NAMES.replace("takes `body`", "sends")})) == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('"""Calls `check_known`."""', "check_known"),
        ('"""A :class:`~mallorn.client.job.Gone`."""', "mallorn.client.job.Gone"),
        ('"""Calls answered() twice."""', "answered"),
        ('"""Calls `answered(body)`."""', "answered"),
        ('"""Reads `Job.owner`."""', "Job.owner"),
        ('"""Raises TurnOver."""', "TurnOver"),
        ('"""Reads `local`, another file\'s variable."""', "local"),
        ('raise ValueError("call answered() first")', "answered"),
        ('# answered\nx = f\'answered {x} again\'\n\n\ndef f():\n    """Call `answered`."""', "answered"),
    ],
)
def test_a_name_that_no_definition_has_is_stale(tmp_path: Path, text: str, name: str) -> None:
    tree = write(tmp_path, {"mallorn/job.py": NAMES.split("\n", 2)[2], "mallorn/rows.py": text + "\n"})
    [place] = stale_names(tree)
    assert place.startswith("mallorn/rows.py:")
    assert place.endswith(f": {name}")


def test_the_raw_file_has_all_figures(tree: Tree) -> None:
    found = raw(tree, figures(tree))
    assert found["headline"] == sum(len(text.splitlines()) for text in tree.texts.values())
