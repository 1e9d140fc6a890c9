"""Budgets of the house: a rise of each figure is named, with its place; `make house` passes here."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.house import figures
from benchmarks.house_budget import ADVICE, Budgets, earlier, lower, over_budget, raised, unexplained, unused
from benchmarks.house_sizes import PAGE
from benchmarks.house_tree import Tree

CLIENT = """
from mallorn.core.http import send


class Client:
    def submit(self, model):
        return send(model)
"""
BEFORE = {
    "mallorn/client.py": CLIENT,
    "mallorn/core/http.py": "def send(body):\n    return body\n",
    f"{PAGE}/App.tsx": "export {};\n",
    "README.md": "Tunes.\n",
}
# What is no prose: code, and the figures of a table.
NO_WORDS = "\n    mallorn devices\n\n    mallorn device\n\n```sh\nmallorn up\n```\n\n| 1.5 | 2 % |\n"
# What is planted for each figure, and how its place begins.
RISES = {
    "loose lines": ({"db/rows.py": "\nrows: dict[str, Any] = {}\n"}, "db/rows.py:2"),
    "knots": (
        {"mallorn/core/http.py": "import mallorn.client\n\n\ndef send(body):\n    return body\n"},
        "mallorn/core/http.py:1 imports mallorn.client",
    ),
    "names twice": (
        {"db/rows.py": "class Client: ...\n"},
        "Client: mallorn/client.py, db/rows.py",
    ),
    "stale names": (
        {"db/rows.py": '"""Holds a TurnOver and `rows`."""\nrows = 1\n'},
        "db/rows.py:1: TurnOver",
    ),
    "product lines": ({"db/rows.py": "\n" * 60}, "db/rows.py (60)"),
    "service lines": ({"db/rows.py": "\n" * 60}, "db/rows.py (60)"),
    "page lines": (
        {f"{PAGE}/Job.tsx": "//\n//\n"},
        f"{PAGE}/Job.tsx (2)",
    ),
    "words of prose": ({"docs/fleet.md": f"A device is listed.\n{NO_WORDS}"}, "docs/fleet.md (4)"),
    "90th percentile of line length": (
        {"db/rows.py": f'TEXT = "{"x" * 90}"\n'},
        "db/rows.py:1 (99 characters)",
    ),
}
Write = Callable[[dict[str, str]], Tree]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(files: dict[str, str]) -> Tree:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return Tree(tmp_path)

    return written


def budgets(
    tree: Tree, twice: dict[str, str] | None = None, rise: dict[str, float] | None = None, **most: float
) -> Budgets:
    """Exactly what a tree has, but for some figures."""
    of_tree = {name: figure.value for name, figure in figures(tree).items()}
    return Budgets(of_tree | most, rise or {}, twice or {})


def test_a_tree_within_its_budgets_is_left_in_peace(write: Write) -> None:
    tree = write(BEFORE)
    assert not list(over_budget(budgets(tree), figures(tree)))


def test_each_figure_has_advice_and_a_rise_that_is_tried(write: Write) -> None:
    assert figures(write(BEFORE)).keys() == ADVICE.keys() == RISES.keys()


@pytest.mark.parametrize("name", RISES)
def test_a_rise_is_named_with_its_place_and_what_to_do(write: Write, name: str) -> None:
    files, place = RISES[name]
    before = budgets(write(BEFORE))
    failures = over_budget(before, figures(write(files)), changed=files)
    [failure] = [each for each in failures if each.startswith(f"{name}: ")]
    assert ADVICE[name] in failure.splitlines()[0]
    assert failure.splitlines()[1] == f"    {place}"


def test_places_in_files_that_were_changed_are_shown_first_and_others_counted(write: Write) -> None:
    before = budgets(write(BEFORE))
    loose = {f"db/{letter}.py": "rows: dict[str, Any]\n" for letter in "abcdefghijklm"}
    failures = over_budget(before, figures(write(loose)), changed=["db/m.py"])
    [failure] = [each for each in failures if each.startswith("loose lines")]
    assert failure.splitlines()[1] == "    db/m.py:1"
    assert failure.splitlines()[-1] == "    ... and 3 more"


def test_a_figure_well_below_its_budget_prints_the_line_to_write(write: Write) -> None:
    tree = write(BEFORE)
    found = figures(tree)
    assert list(lower(budgets(tree, knots=2), found)) == ['house.toml can be lowered: "knots" = 0  # was 2']


def test_a_budget_that_rises_is_refused_beyond_what_it_may(write: Write) -> None:
    tree = write(BEFORE)
    now = budgets(tree, knots=1)
    [failure] = raised(now, budgets(tree))
    assert failure == "house.toml: the budget of knots rose from 0 to 1. Lower the figure."
    assert not list(raised(now, budgets(tree, rise={"knots": 1})))
    assert not list(raised(now, None))


def test_a_class_name_twice_needs_a_reason_in_the_budgets_or_the_glossary(write: Write) -> None:
    tree = write(BEFORE | RISES["names twice"][0])
    [failure] = unexplained(budgets(tree), tree)
    assert failure.startswith("Client is a class in mallorn/client.py, db/rows.py.")
    assert not list(unexplained(budgets(tree, twice={"Client": "HTTP's and SQL's"}), tree))
    write({"docs/glossary.md": "- `Client`: HTTP's in mallorn/client.py, SQL's in db/rows.py.\n"})
    assert not list(unexplained(budgets(tree), tree))


def test_a_reason_for_a_name_that_stands_once_is_asked_out(write: Write) -> None:
    tree = write(BEFORE)
    assert list(unused(budgets(tree, twice={"Client": ""}), tree)) == [
        "house.toml: Client does not stand twice; take it out."
    ]


def test_earlier_budgets_are_those_where_the_branch_began(write: Write, tmp_path: Path) -> None:
    text = "[most]\nknots = {}\n[rise]\n[twice]\n"
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q", "-b", "main"], check=True)
    for knots in (3, 2, 1):
        write({"house.toml": text.format(knots)})
        subprocess.run([*git, "add", "."], check=True)
        subprocess.run([*git, "commit", "-q", "-m", "budgets"], check=True)
        if knots == 3:
            subprocess.run([*git, "checkout", "-q", "-b", "branch"], check=True)
    found = earlier(tmp_path)
    assert found
    assert found.most == {"knots": 3}


def test_a_tree_without_git_has_no_earlier_budgets(write: Write) -> None:
    assert earlier(write(BEFORE).root) is None
