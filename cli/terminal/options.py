"""What a job is asked for on the command line, and how its options are read."""

import json
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from mallorn.core.errors import InvalidRequest
from mallorn.core.names import CONTRACTS
from mallorn.core.options import JobOptions, choices

TargetOption = Annotated[
    str, typer.Option("--target", help="`local`, a JSON target, or a tag like nvidia/nvidia-h100.")
]
TrialsOption = Annotated[
    int | None,
    typer.Option(
        "--trials",
        min=0,
        help="Candidates to try; 0 for what is known already, or sane defaults.  "
        "[default: 200; with --minutes no limit]",
    ),
]
MinutesOption = Annotated[
    float | None,
    typer.Option("--minutes", min=0, help="Stop after so many minutes; without --trials only then."),
]
SeedOption = Annotated[int, typer.Option("--seed", help="Seed of every choice.")]
JobOption = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        "-o",
        metavar="NAME=VALUE",
        help="Any job option, as search=random or evaluator.repeat=3; repeatable.",
    ),
]


def known(option: str) -> str:
    """The names that an option may have, for a help text."""
    return ", ".join(choices(option))


def words(option: str) -> str:
    """What the schema says of a job option, for a help text; of a choice also the names."""
    said = str(JobOptions.model_fields[option].description)
    own = ", or MODULE:CLASS of your own" if option in CONTRACTS else ""
    return f"{said} One of {known(option)}{own}." if choices(option) else said


ShapeOption = Annotated[
    list[str] | None,
    typer.Option("--input-shape", metavar="NAME:1,3,224,224", help=f"{words('input_shapes')} Repeatable."),
]
RecipeOption = Annotated[str | None, typer.Option("--recipe", help=words("recipe"))]
PrecisionOption = Annotated[str | None, typer.Option("--precision", help=words("precision"))]
SearchOption = Annotated[str | None, typer.Option("--search", help=words("search"))]
CostModelOption = Annotated[str | None, typer.Option("--cost-model", help=words("cost_model"))]
SamplerOption = Annotated[str | None, typer.Option("--sampler", help=words("sampler"))]
StoppingOption = Annotated[str | None, typer.Option("--stopping", help=words("stopping"))]
PolicyOption = Annotated[str | None, typer.Option("--policy", help=words("policy"))]
FamiliesOption = Annotated[str | None, typer.Option("--families", help=words("families"))]
RoundSizeOption = Annotated[int | None, typer.Option("--round-size", min=1, max=64, help=words("round_size"))]
OnlyOption = Annotated[
    list[str] | None, typer.Option("--only", metavar="PATTERN", help=f"{words('only')} Repeatable.")
]


def job_options(
    pairs: Iterable[str] | None, input_shapes: Iterable[str] | None, **named: Any
) -> dict[str, Any]:
    """What was asked for by an option's own name, and then by --option."""
    given = {name: value for name, value in named.items() if value is not None}
    return given | parse_options(pairs or [], input_shapes or [])


def parse_options(pairs: Iterable[str], input_shapes: Iterable[str] = ()) -> dict[str, Any]:
    """`["search=random", "evaluator.repeat=3"]` as nested options; a value is JSON where it reads as such."""
    options: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise InvalidRequest(f"cannot read the option {pair!r}", hint="--option search=random")
        _put(options, name.split("."), _value(value))
    shapes = dict(parse_input_shape(text) for text in input_shapes)
    return {**options, "input_shapes": shapes} if shapes else options


def parse_input_shape(text: str) -> tuple[str, list[int]]:
    """`x:1,3,224,224` as a name and its dimensions; the name may hold colons itself."""
    name, colon, dimensions = text.rpartition(":")
    sizes = dimensions.split(",")
    if not colon or not name or not all(size.strip().isdigit() for size in sizes):
        raise InvalidRequest(f"cannot read the input shape {text!r}", hint="--input-shape x:1,3,224,224")
    return name, [int(size) for size in sizes]


def _put(options: dict[str, Any], path: list[str], value: Any) -> None:
    *parents, last = path
    for parent in parents:
        options = options.setdefault(parent, {})
        if not isinstance(options, dict):
            raise InvalidRequest(f"the option {parent!r} is given as a value and as a group")
    options[last] = value


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
