"""The pages of reference: current, and complete."""

import json
from itertools import chain
from pathlib import Path

import pytest

from mallorn.cli.main import JOB_COMMANDS, SECTIONS
from mallorn.core.job_options import JobOptions
from mallorn.core.settings import Settings
from mallorn.services.coordinator.api_docs_page import JsonSchema
from tests.contract.reference.markdown import COMMAND, Undescribed, described, table
from tests.contract.reference.pages import pages
from tests.contract.reference.rest import type_of

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"


@pytest.fixture(scope="module")
def written() -> dict[str, str]:
    return pages()


def test_the_pages_are_current(written: dict[str, str]) -> None:
    kept = {file.name: file.read_text() for file in REFERENCE.glob("*.md")}
    stale = [name for name in {*kept, *written} if kept.get(name) != written.get(name)]
    assert not stale, f"{', '.join(sorted(stale))}: {COMMAND}"


def test_every_command_is_there(written: dict[str, str]) -> None:
    names = [*chain(*SECTIONS.values()), *(f"jobs {name}" for name in JOB_COMMANDS)]
    assert not [name for name in names if f"## mallorn {name}" not in written["cli.md"]]


def test_every_route_is_there(written: dict[str, str]) -> None:
    document = json.loads((ROOT / "services" / "openapi.json").read_text())
    routes = [f"{method.upper()} {path}" for path, methods in document["paths"].items() for method in methods]
    assert [route for route in routes if f"\n### {route}\n" not in written["rest.md"]] == []


def test_every_setting_and_every_option_is_there(written: dict[str, str]) -> None:
    settings = [f"| `MALLORN_{name.upper()}` |" for name in Settings.model_fields]
    assert [row for row in settings if row not in written["settings.md"]] == []
    options = [f"| `{name}` |" for name in JobOptions.model_fields]
    assert [row for row in options if row not in written["options.md"]] == []


def test_nobodys_home_is_on_a_page(written: dict[str, str]) -> None:
    assert str(Path.home()) not in "".join(written.values()).replace("~/", "")


@pytest.mark.parametrize("text", [None, "", " \n "])
def test_what_has_no_words_is_named(text: str | None) -> None:
    with pytest.raises(Undescribed, match="mallorn fly has no description"):
        described("mallorn fly", text)


def test_a_bar_in_a_cell_breaks_no_table() -> None:
    assert table(["a"], [["x | y"]])[2] == "| x \\| y |"


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "array", "items": {"type": "integer"}}, "list of integer"),
        ({"anyOf": [{"$ref": "#/components/schemas/JobOut"}, {"type": "null"}]}, "JobOut or null"),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "object of number"),
        ({"enum": ["a", "b"], "type": "string"}, '"a", "b"'),
        ({}, "any"),
    ],
)
def test_types_are_told_in_a_few_words(schema: dict[str, object], words: str) -> None:
    assert type_of(JsonSchema.model_validate(schema)) == words
