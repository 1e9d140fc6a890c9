"""Draws for readers: what is drawn, that a seed draws the same again, and the table of verdicts."""

import json
from pathlib import Path

import pytest

from benchmarks.draws import KINDS, draw, package, pages, read_verdicts, summary

MODULES = {
    "db/jobs.py": '''"""Jobs."""

class Jobs:
    """Reads jobs."""

    def page(self, limit: int = 5) -> list[str]:
        """Return a page."""

    def __len__(self) -> int: ...


def count() -> int: ...
''',
    "db/__init__.py": '"""The database."""\n',
}


def test_docstrings_of_modules_classes_and_functions_are_drawn() -> None:
    texts = {row["text"] for row in draw("docstrings", MODULES, 10, seed=0)}
    assert texts == {"Jobs.", "Reads jobs.", "Return a page.", "The database."}


def test_a_function_is_drawn_with_its_signature_and_without_its_docstring() -> None:
    rows = draw("functions", MODULES, 10, seed=0)
    signatures = {"Jobs.page(self, limit: int=5) -> list[str]", "count() -> int"}
    assert {row["signature"] for row in rows} == signatures
    assert all("text" not in row for row in rows)


def test_an_error_is_drawn_with_its_text_if_that_is_a_sentence() -> None:
    source = 'def f():\n    raise ValueError(f"there is no job {1}, and none was deleted")\n'
    source += '    raise KeyError("x")\n'
    (row,) = draw("messages", {"db/jobs.py": source}, 10, seed=0)
    assert row == {
        "place": "db/jobs.py:2",
        "text": "ValueError(f'there is no job {1}, and none was deleted')",
    }


def test_pages_are_those_that_people_write(tmp_path: Path) -> None:
    for name in ("install.md", "adr/0001.md", "results/a.md", "reference/cli.md", "tutorials/searcher.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("# A page\n")
    assert [Path(row["place"]).name for row in pages(tmp_path)] == ["install.md", "searcher.md"]


def test_a_file_without_code_is_not_drawn() -> None:
    assert draw("files", MODULES, 10, seed=0) == [{"place": "db/jobs.py"}]


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_draws_the_same_rows_again_and_another_seed_others(kind: str) -> None:
    rows = [draw(kind, package("asyncio"), 3, seed) for seed in (1, 1, 2)]
    assert rows[0] == rows[1] != rows[2]


def test_a_package_that_is_not_installed_is_named() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        package("no_such_package")


def test_verdicts_become_a_table(tmp_path: Path) -> None:
    rows = [
        {"commit": "0" * 40},
        *({"kind": "files", "package": "mallorn", "score": s} for s in (2, 2, 1, 0)),
    ]
    file = tmp_path / "files.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert list(summary(read_verdicts([file])))[2:] == ["| files | mallorn | 4 | 2 | 1 | 1 | 1.25 |"]
