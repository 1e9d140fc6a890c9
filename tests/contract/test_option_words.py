"""What an option of a job is for is said once, in its schema: command line, page and reference repeat it."""

import json
from pathlib import Path
from typing import Any, Final

import pytest
from typer.main import get_command

from mallorn.cli.main import app
from mallorn.cli.terminal.job_options import WITHOUT_FLAG
from mallorn.core.job_options import EvaluatorOptions, JobOptions, SimulatedOptions
from mallorn.services.coordinator.options_and_retention import list_options
from tests.contract.reference.pages import pages

OPENAPI: Final = Path(__file__).parents[2] / "services" / "openapi.json"
WORDS: Final = {name: str(field.description) for name, field in JobOptions.model_fields.items()}
WITH_A_FLAG: Final = WORDS.keys() - WITHOUT_FLAG - {"evaluator", "simulated"}


def helps(command: str) -> dict[str, str]:
    """What `mallorn COMMAND --help` says, by the name of the parameter."""
    group: Any = get_command(app)
    return {param.name: param.help or "" for param in group.get_command(None, command).params}


@pytest.mark.parametrize("schema", [JobOptions, EvaluatorOptions, SimulatedOptions])
def test_every_option_has_a_sentence_of_its_own(
    schema: type[JobOptions | EvaluatorOptions | SimulatedOptions],
) -> None:
    said = [field.description or "" for field in schema.model_fields.values()]
    assert all(words.endswith(".") and words[0].isupper() for words in said)
    assert len(set(said)) == len(said)


@pytest.mark.parametrize("command", ["tune", "submit"])
def test_the_command_line_says_the_same(command: str) -> None:
    said = helps(command)
    assert said.keys() >= WITH_A_FLAG
    assert [name for name in WITH_A_FLAG if not said[name].startswith(WORDS[name])] == []


def test_the_page_is_told_the_same() -> None:
    assert {option.name: option.description for option in list_options().items} == WORDS


def test_the_reference_says_the_same() -> None:
    written = pages()["options.md"]
    assert [name for name, words in WORDS.items() if f"| {words} |" not in written] == []


def test_the_api_documents_the_same() -> None:
    schemas = json.loads(OPENAPI.read_text())["components"]["schemas"]
    documented = schemas["JobOptions"]["properties"]
    assert {name: each["description"] for name, each in documented.items()} == WORDS
