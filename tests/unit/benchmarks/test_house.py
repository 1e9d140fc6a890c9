"""What the figures of a tree count, on a made-up one."""

from pathlib import Path

import pytest

from benchmarks.house import candidate_types, count, files_in_steps, raw
from benchmarks.house_tree import Tree

FILES = {
    "mallorn/__init__.py": "",
    "mallorn/client.py": """
from mallorn.http import send


class Client:
    def submit(self, model):
        return send(model)

    def jobs(self):
        from mallorn.listing import jobs
        return jobs()
""",
    "mallorn/http.py": "def send(body: dict[str, Any]):\n    return body\n",
    "mallorn/listing.py": "def jobs():\n    return []\n",
    "mallorn/commands/tune.py": "rows: list[Mapping[str, Any]] = []\n",
    "services/coordinator/endpoints.py": """
from mallorn.db import jobs


def submit_job(session):
    repository = jobs.Jobs(session)
    return repository.add()
""",
    "db/jobs.py": """
from mallorn.db.base import Repository


class Jobs(Repository):
    def add(self):
        return self.changed()

    def remove(self):
        from mallorn.db.removals import remove
        return remove()
""",
    "db/base.py": """
from mallorn.db.locks import lock


class Repository:
    def changed(self):
        return lock()
""",
    "db/locks.py": "def lock():\n    return _short()\n\n\ndef _short():\n    return 1\n",
    "db/handed_on.py": """
def _key(row):
    return row.id


@cache
def _kept():
    return 1


def _each():
    yield 1


ROWS = sorted(_kept(), key=_key), list(_each())
""",
    "db/removals.py": "def remove():\n    return None\n",
    "db/migrations/versions/0001.py": "class Jobs: ...\n",
    "workers/round/values.py": """
from mallorn.searchers.values import Result


class Slot:
    number: int
    sketch: str


class Measured(Result):
    decisions: tuple[int, ...]


class Held:
    result: Result
    slot: Slot
""",
    "searchers/values.py": """
from mallorn.workers.round.deep.values import Slot


class Result:
    outcome: str


class Trial:
    candidate: object
    latency_us: float | None
""",
    "workers/round/deep/values.py": """
from mallorn.workers.round.values import Held


class Slot: ...


def _long():
    one = 1
    two = 2
    three = 3
    return one + two + three


def _often():
    return _long()


PAIR = _often(), _often()
""",
}


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Tree(tmp_path)


def test_a_type_of_a_candidate_says_which_and_what_became_of_it_in_its_own_fields_or_inherited_ones(
    tree: Tree,
) -> None:
    found = candidate_types(tree)
    assert found == ["workers/round/values.py: Measured", "searchers/values.py: Trial"]


def test_loose_lines_are_those_with_a_dict_or_mapping_of_any(tree: Tree) -> None:
    assert count(tree)["loose lines"] == ["mallorn/commands/tune.py:1", "mallorn/http.py:1"]


def test_folders_that_import_each_other_around_a_corner_are_one_knot(tree: Tree) -> None:
    assert count(tree)["knots"] == ["searchers workers/round workers/round/deep"]


def test_migrations_are_left_out_of_names_that_are_given_twice(tree: Tree) -> None:
    twice = count(tree)["names twice"]
    assert twice == ["Slot: workers/round/deep/values.py, workers/round/values.py"]


def test_a_small_helper_is_short_and_called_in_one_place_where_it_could_be_written(tree: Tree) -> None:
    assert count(tree)["small helpers"] == ["db/locks.py:5 _short"]


def test_files_by_calls_are_those_with_a_function_on_the_way(tree: Tree) -> None:
    assert count(tree)["files by calls"] == [
        "db/base.py",
        "db/jobs.py",
        "db/locks.py",
        "mallorn/client.py",
        "mallorn/http.py",
        "services/coordinator/endpoints.py",
    ]


def test_files_in_steps_are_those_that_numbered_steps_name_once_each(tree: Tree) -> None:
    page = tree.root / "ARCHITECTURE.md"
    page.write_text(
        "# Life\n\n`db/removals.py` is no step.\n\n"
        "1. **Submit** (`mallorn/client.py`), which\n   `db/jobs.py` stores.\n"
        "2. Again `mallorn/client.py`.\n\n`db/base.py` neither.\n"
    )
    assert files_in_steps(tree) == ["db/jobs.py", "mallorn/client.py"]


def test_a_step_that_names_a_file_which_is_gone_is_refused(tree: Tree) -> None:
    (tree.root / "ARCHITECTURE.md").write_text("1. `mallorn/gone.py`\n")
    with pytest.raises(FileNotFoundError, match=r"mallorn/gone\.py"):
        files_in_steps(tree)


def test_nothing_is_said_of_steps_that_name_no_files(tree: Tree) -> None:
    found = raw(tree, count(tree))
    assert isinstance(found["figures"], dict)
    assert found["figures"]["files in steps"] is None
    assert found["figures"]["lines"] == tree.lines
    assert found["headline"] == 2
