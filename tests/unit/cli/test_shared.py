"""Options that are declared once and taken whole by several commands."""

from typing import Annotated, NamedTuple

import pytest
import typer
from typer.testing import CliRunner, Result

from cli.terminal.option_groups import shared
from mallorn.core.check_option_kwargs import EvaluatorAsked, OptionKwargs
from mallorn.core.job_options import EvaluatorOptions, JobOptions
from tests.fixtures.answers import mallorn, refused


class Group(NamedTuple):
    name: Annotated[str, typer.Option("--name", help="A name.")]
    times: Annotated[int, typer.Option(help="How often.")] = 1


def run(*words: str) -> Result:
    single = typer.Typer(rich_markup_mode=None)

    @single.command()
    @shared
    def greet(who: str, group: Group, loud: bool = False) -> None:
        """Greet."""
        typer.echo(f"{who} {group} {loud}")

    return CliRunner().invoke(single, words)


def test_a_command_has_the_options_of_its_groups_in_the_place_where_it_takes_them() -> None:
    said = run("--help").stdout
    assert said.index("--name") < said.index("--times") < said.index("--loud")
    assert "Greet." in said


def test_a_command_is_given_its_groups_whole() -> None:
    assert run("you", "--name", "n", "--loud").stdout == f"you {Group('n')} True\n"
    assert run("you", "--name", "n", "--times", "3").stdout == f"you {Group('n', 3)} False\n"


def test_an_option_of_a_group_that_must_be_given_is_asked_for() -> None:
    assert run("you").exit_code == 2


def test_what_may_be_asked_for_is_what_a_job_has() -> None:
    assert OptionKwargs.__annotations__.keys() == JobOptions.model_fields.keys()
    assert EvaluatorAsked.__annotations__.keys() == EvaluatorOptions.model_fields.keys()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--search", "annealed"], ["unknown search 'annealed'", "known:"]),
        (["--option", "serach=random"], ["there is no option serach", "known:"]),
        (["--option", "evaluator.repeat=none"], ["the option evaluator.repeat:", "mallorn tune --help"]),
    ],
)
def test_tune_refuses_a_wrong_option_before_a_service_is_started(
    monkeypatch: pytest.MonkeyPatch, words: list[str], said: list[str]
) -> None:
    monkeypatch.setattr(
        "cli.tune_and_resume.connected_stack", lambda *_: pytest.fail("a service was started")
    )
    refused(mallorn("tune", "net.onnx", *words), *said)
