"""Command-line options that describe a job, and their parsers."""

import json
from collections.abc import Iterable, Iterator
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, cast

import typer

from mallorn.core.check_option_kwargs import OptionKwargs
from mallorn.core.errors import InvalidRequest
from mallorn.core.job_options import WITHOUT_FLAG, JobOptions, accepted_names
from mallorn.core.registry import CONTRACTS

TARGETS: Final = "`local`, `cuda`, a JSON target, or a tag like nvidia/nvidia-h100"
TargetOption = Annotated[str, typer.Option("--target", help=f"{TARGETS}.")]
TargetsOption = Annotated[
    list[str] | None,
    typer.Option("--target", help=f"{TARGETS}; repeatable: a job for each.  [default: local]"),
]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Write into --out even if it holds other schedules or files.")
]
SeedOption = Annotated[int, typer.Option("--seed", help="Seed of every choice.")]


def accepted_names_text(option: str) -> str:
    """Return the names that an option accepts, separated by commas, for a help text."""
    return ", ".join(accepted_names(option))


def option_help(option: str) -> str:
    """Return an option's help text: its description, and the names it accepts, if any."""
    description = str(JobOptions.model_fields[option].description)
    class_words = ", or MODULE:CLASS of your own" if option in CONTRACTS else ""
    if accepted_names(option):
        return f"{description} One of {accepted_names_text(option)}{class_words}."
    return description


ShapeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--input-shape", metavar="NAME:1,3,224,224", help=f"{option_help('input_shapes')} Repeatable."
    ),
]
DynamicOption = Annotated[
    list[str] | None,
    typer.Option("--dynamic", metavar="NAME=1..64", help=f"{option_help('dynamic')} Repeatable."),
]
OnlyOption = Annotated[
    list[str] | None, typer.Option("--only", metavar="PATTERN", help=f"{option_help('only')} Repeatable.")
]
InputsOption = Annotated[
    Path | None,
    typer.Option(
        "--inputs",
        metavar="FILE.npz",
        help="Inputs for checks: arrays by input name; of several draws, 0/NAME, 1/NAME.",
    ),
]
LabelOption = Annotated[
    list[str] | None,
    typer.Option("--label", metavar="KEY[=VALUE]", help="A label of the job, to list it by; repeatable."),
]


class EffortOptions(NamedTuple):
    """The budget of a tuning job and its seed."""

    trials: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Candidates to measure; 0: use known schedules, else defaults.   "
            "[default: 0; with --minutes no limit; with options of the search as --auto]",
        ),
    ] = None
    minutes: Annotated[
        float | None, typer.Option(min=0, help="Stop after this many minutes; without --trials, only then.")
    ] = None
    seed: SeedOption = 0


AutoOption = Annotated[
    bool, typer.Option("--auto", help="Measure as many candidates as are worth their time.")
]
# Options that would have no effect on a job without trials.
SEARCH_OPTIONS: Final = {
    *("mode", "search", "cost_model", "sampler", "stopping", "policy", "families", "contention"),
    *("measurer", "round_size", "task_trials", "wait_for_quiet"),
}


def limit_trials(effort: EffortOptions, auto: bool, options: OptionKwargs) -> EffortOptions:
    """Return the effort of a command: without a budget, --auto or an option of the search, no trials.

    Raises InvalidRequest for --auto beside a budget.
    """
    has_budget = effort.trials is not None or effort.minutes is not None
    if auto and has_budget:
        raise InvalidRequest("--auto is a budget, like --trials and --minutes", hint="leave all but one out")
    if auto or has_budget or SEARCH_OPTIONS & options.keys():
        return effort
    return effort._replace(trials=0)


TYPES: Final[dict[str, type]] = {"boolean": bool, "integer": int, "number": float, "string": str}


def read_flags(
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            "-o",
            metavar="NAME=VALUE",
            help="Any job option, as search=random or evaluator.repeat=3; repeatable.",
        ),
    ] = None,
    **flags: Any,
) -> OptionKwargs:
    """Return the options that the user gave; `--option` overrides the other flags."""
    options = {name: value for name, value in flags.items() if value is not None}
    for name, parse in (("input_shapes", parse_input_shape), ("dynamic", parse_dynamic)):
        if name in options:
            options[name] = dict(map(parse, options[name]))
    return cast(OptionKwargs, options | parse_options(option or []))


def _flags() -> Iterator[Parameter]:
    """Yield a parameter for each job option with a flag, as typer reads it."""
    repeated: dict[str, object] = {"only": OnlyOption, "input_shapes": ShapeOption, "dynamic": DynamicOption}
    for name, schema in JobOptions.model_json_schema()["properties"].items():
        limits = schema.get("anyOf", [schema])[0]
        if name in WITHOUT_FLAG or (name not in repeated and limits.get("type") not in TYPES):
            continue
        bounds = {"min": limits.get("minimum"), "max": limits.get("maximum")}
        flag_name = name.replace("_", "-")
        words = f"--{flag_name}/--no-{flag_name}" if schema.get("default") is True else f"--{flag_name}"
        flag = typer.Option(words, help=option_help(name), **bounds)
        hint = repeated.get(name) or Annotated[TYPES[limits["type"]] | None, flag]
        yield Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=hint)


read_flags.__signature__ = Signature(  # type: ignore[attr-defined]
    [*_flags(), signature(read_flags).parameters["option"].replace(kind=Parameter.KEYWORD_ONLY)]
)
JobFlags = Annotated[OptionKwargs, read_flags]


def parse_options(pairs: Iterable[str]) -> dict[str, object]:
    """Parse texts such as `evaluator.repeat=3` to nested options; values may be JSON."""
    options: dict[str, object] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise InvalidRequest(f"cannot read the option {pair!r}", hint="--option search=random")
        *parents, last = name.split(".")
        group = options
        for parent in parents:
            inner = group.setdefault(parent, {})
            if not isinstance(inner, dict):
                raise InvalidRequest(f"the option {parent!r} is given whole and in parts")
            group = inner
        try:
            group[last] = json.loads(value)
        except ValueError:
            group[last] = value
    return options


def parse_input_shape(text: str) -> tuple[str, list[int]]:
    """Parse `x:1,3,224,224` to a name and its dimensions; the name may contain colons."""
    name, colon, dimensions = text.rpartition(":")
    sizes = dimensions.split(",")
    if not colon or not name or not all(size.strip().isdigit() for size in sizes):
        raise InvalidRequest(f"cannot read the input shape {text!r}", hint="--input-shape x:1,3,224,224")
    return name, [int(size) for size in sizes]


def parse_dynamic(text: str) -> tuple[str, list[int]]:
    """Parse `batch=1..64` to a name and [smallest, largest]; `batch=4` is one size."""
    name, equals, sizes = text.rpartition("=")
    low, dots, high = sizes.partition("..")
    bounds = [low, high if dots else low]
    if not equals or not name or not all(size.strip().isdigit() for size in bounds):
        raise InvalidRequest(f"cannot read the range {text!r}", hint="--dynamic batch=1..64")
    return name, [int(size) for size in bounds]
