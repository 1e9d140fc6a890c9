"""What stands in the tutorials works: their code is run as a reader would run it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.command_line import ROOT
from tests.fixtures.tutorials import Block, Checkout, blocks

PAGES = ROOT / "docs" / "tutorials"
# In an order in which each finds what it says that it needs.
# The code of `onnxruntime` runs in an environment of its own (test_onnxruntime.py).
TUTORIALS = ("replay", "tune", "stock-tvm", "use", "onnxruntime", "searcher", "cost-model", "fleet")
LONG = {"replay", "use", "fleet", "cost-model"}
EACH = [pytest.param(name, marks=[pytest.mark.long] if name in LONG else []) for name in TUTORIALS]


def read(name: str) -> list[Block]:
    return blocks((PAGES / f"{name}.md").read_text())


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    """A checkout with all that the tutorials write into it, and a service that runs it."""
    made = Checkout(tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("data"))
    for name in TUTORIALS:
        for block in read(name):
            made.edit(block)
    with made.service():
        yield made


def test_every_tutorial_is_listed_and_run() -> None:
    written = {page.stem for page in PAGES.glob("*.md")}
    assert written == set(TUTORIALS)
    assert all(f"(tutorials/{name}.md)" in (ROOT / "docs" / "README.md").read_text() for name in written)


@pytest.mark.parametrize("name", EACH)
def test_the_code_of_a_tutorial_runs(checkout: Checkout, name: str) -> None:
    said = "".join(checkout.run(block) for block in read(name))
    assert "Traceback" not in said, said


def test_the_searcher_that_a_reader_brought_was_used(checkout: Checkout) -> None:
    origins = checkout.run(Block("sh", {}, "mallorn dataset records --limit 500 --json"))
    assert '"origin": "neighbours:step"' in origins


@pytest.mark.long
def test_the_cost_model_that_a_reader_brought_was_used(checkout: Checkout) -> None:
    models = checkout.run(Block("sh", {}, "mallorn costmodels list --name additive --json"))
    assert '"additive"' in models


def test_files_that_are_shown_are_the_tutorials_to_keep(checkout: Checkout) -> None:
    for name in ("tuned/apply.py", "mlp.so", "report.html", "by-neighbours/manifest.json"):
        assert (checkout.root / name).is_file(), name


def test_a_page_is_cut_into_its_blocks(tmp_path: Path) -> None:
    page = "# T\n\n```sh\na\nb\n```\n\ntext `x`\n\n```python insert=n.py under=search\n    c\n```\n"
    assert blocks(page) == [
        Block("sh", {}, "a\nb\n"),
        Block("python", {"insert": "n.py", "under": "search"}, "    c\n"),
    ]
