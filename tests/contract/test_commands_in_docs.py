"""Every command of ours that a page shows is one that the command line takes: its names and options."""

import re
import shlex
from collections.abc import Iterator
from typing import Any, Final

import pytest
from typer.main import get_command

from mallorn.cli.main import app
from tests.fixtures.command_line import ROOT

# The first hours are typed whole (tests/hours).
OTHERS: Final = {"adr", "reference", "results", "first-hours"}
PAGES: Final = sorted(
    page
    for page in (ROOT / "README.md", *(ROOT / "deploy").glob("*.md"), *(ROOT / "docs").rglob("*.md"))
    if not OTHERS & set(page.relative_to(ROOT).parts)
)
FENCED: Final = re.compile(r"^```(?:sh|console)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
INDENTED: Final = re.compile(r"^    (?:\$ )?(mallorn .*)$", re.MULTILINE)
INLINE: Final = re.compile(r"`(mallorn [^`]*)`")
ENDS: Final = frozenset({"|", "||", "&&", ";", "&", ">", ">>", "2>", "<", "or"})


def commands(page: str) -> Iterator[str]:
    """Lines of code blocks and spans of code that begin with our command, or have it behind another."""
    for block in FENCED.findall(page):
        for line in block.replace("\\\n", " ").splitlines():
            yield from re.findall(r"(?:^|[;&|(]\s*|\w=\S+ )(mallorn .*)", line)
    yield from INDENTED.findall(page)
    yield from (span.replace("\n", " ") for span in INLINE.findall(page))


def words_of(command: str) -> list[str]:
    """The words up to the end of the command, or to the first gap: behind it a page explains."""
    command = re.split(r" {3,}", command.strip())[0]
    lexer = shlex.shlex(re.sub(r"[\[\]]", " ", command), posix=True, punctuation_chars=";&|><")
    lexer.whitespace_split, lexer.commenters = True, "#"
    words: list[str] = []
    for word in lexer:
        if word in ENDS:
            break
        words.append(word)
    return words[1:]


def taken(words: list[str], command: Any = None, context: Any = None) -> None:
    """Raises what the command line says of a name or an option that it does not have."""
    command = command or get_command(app)
    context = command.make_context("mallorn", [], parent=context, resilient_parsing=True)
    _, rest, _ = command.make_parser(context).parse_args(list(words))
    if rest and hasattr(command, "commands") | hasattr(command, "get_command"):
        name, *others = rest
        found = command.get_command(context, name)
        assert found is not None or command.invoke_without_command, f"there is no command {name}"
        if found is not None:
            taken(others, found, context)


SHOWN: Final = sorted({(page.name, text) for page in PAGES for text in commands(page.read_text())})


def test_pages_show_commands() -> None:
    assert len(SHOWN) > 100


@pytest.mark.parametrize(("page", "command"), SHOWN, ids=[f"{page}: {text}" for page, text in SHOWN])
def test_a_command_on_a_page_is_one_that_is_taken(page: str, command: str) -> None:
    taken(words_of(command))


def test_readme_is_a_hundred_lines_and_its_first_command_is_on_the_first_screen() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 100
    assert any(line.startswith("make run") for line in lines[:24])
