"""Options that are declared once and taken whole by several commands."""

from typing import Annotated, Any, Final, Literal, NamedTuple, get_args, get_origin, get_type_hints

import pytest
import typer
from pydantic import BaseModel
from typer.testing import CliRunner, Result

from mallorn.cli.terminal.job_options import SEARCH_OPTIONS, EffortOptions, limit_trials
from mallorn.cli.terminal.option_groups import expand_option_groups
from mallorn.core.check_option_kwargs import EvaluatorKwargs, OptionKwargs, SimulatedKwargs
from mallorn.core.errors import InvalidRequest
from mallorn.core.job_options import EvaluatorOptions, JobOptions, SimulatedOptions
from tests.fixtures.answers import mallorn, refused


class Group(NamedTuple):
    name: Annotated[str, typer.Option("--name", help="A name.")]
    times: Annotated[int, typer.Option(help="How often.")] = 1


def run(*words: str) -> Result:
    single = typer.Typer(rich_markup_mode=None)

    @single.command()
    @expand_option_groups
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


KWARGS: Final[dict[Any, Any]] = {
    JobOptions: OptionKwargs,
    EvaluatorOptions: EvaluatorKwargs,
    SimulatedOptions: SimulatedKwargs,
}


def plain(annotation: Any) -> Any:
    """Return a schema's type without its limits, with the keywords' type for a nested schema."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return plain(args[0])
    if origin is Literal:
        return str
    if origin in (list, dict):
        return origin[tuple(map(plain, args))]
    if args:
        return plain(args[0]) | None
    return KWARGS.get(annotation, annotation)


@pytest.mark.parametrize("schema", KWARGS)
def test_the_keywords_are_the_options_of_a_job(schema: type[BaseModel]) -> None:
    hints = get_type_hints(KWARGS[schema], include_extras=True)
    fields = {name: plain(field.annotation) for name, field in schema.model_fields.items()}
    assert {name: plain(hint) for name, hint in hints.items()} == fields


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
        "mallorn.cli.tune_and_resume.connected_stack", lambda *_: pytest.fail("a service was started")
    )
    refused(mallorn("tune", "net.onnx", *words), *said)


@pytest.mark.parametrize(
    ("effort", "auto", "options", "trials"),
    [
        (EffortOptions(), False, {}, 0),
        (EffortOptions(), False, {"library": False, "precision": "bf16"}, 0),
        (EffortOptions(), True, {}, None),
        (EffortOptions(), False, {"search": "random"}, None),
        (EffortOptions(), False, {"mode": "zero-shot"}, None),
        (EffortOptions(minutes=1), False, {}, None),
        (EffortOptions(trials=8), False, {"search": "random"}, 8),
    ],
)
def test_without_a_budget_a_command_measures_no_candidates(
    effort: EffortOptions, auto: bool, options: OptionKwargs, trials: int | None
) -> None:
    assert limit_trials(effort, auto, options).trials == trials


def test_a_command_takes_one_budget() -> None:
    with pytest.raises(InvalidRequest):
        limit_trials(EffortOptions(trials=8), True, {})


def test_options_that_need_trials_are_options_of_a_job() -> None:
    assert JobOptions.model_fields.keys() >= SEARCH_OPTIONS
