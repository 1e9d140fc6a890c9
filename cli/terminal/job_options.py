"""What a job is asked for on the command line, and how its options are read."""

import json
from collections.abc import Iterable
from typing import Annotated, NamedTuple, cast

import typer

from mallorn.core.check_option_kwargs import OptionKwargs
from mallorn.core.errors import InvalidRequest
from mallorn.core.job_options import JobOptions, choices
from mallorn.core.registry import CONTRACTS
from mallorn.core.targets import LOCAL

TargetOption = Annotated[
    str, typer.Option("--target", help="`local`, `cuda`, a JSON target, or a tag like nvidia/nvidia-h100.")
]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Write into --out, whatever schedules and files it holds.")
]
SeedOption = Annotated[int, typer.Option("--seed", help="Seed of every choice.")]


def known(option: str) -> str:
    """The names that an option may have, for a help text."""
    return ", ".join(choices(option))


def said_of(option: str) -> str:
    """What the schema says of a job option."""
    return str(JobOptions.model_fields[option].description)


def words(option: str) -> str:
    """The same for a help text; of a choice also the names."""
    said = said_of(option)
    own = ", or MODULE:CLASS of your own" if option in CONTRACTS else ""
    return f"{said} One of {known(option)}{own}." if choices(option) else said


ShapeOption = Annotated[
    list[str] | None,
    typer.Option("--input-shape", metavar="NAME:1,3,224,224", help=f"{words('input_shapes')} Repeatable."),
]
DynamicOption = Annotated[
    list[str] | None, typer.Option("--dynamic", metavar="NAME=1..64", help=f"{words('dynamic')} Repeatable.")
]
OnlyOption = Annotated[
    list[str] | None, typer.Option("--only", metavar="PATTERN", help=f"{words('only')} Repeatable.")
]


class EffortOptions(NamedTuple):
    """For what a model is tuned, and for how long."""

    target: TargetOption = LOCAL
    trials: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Candidates to try; 0 for what is known already, or sane defaults.  "
            "[default: while they are worth their seconds; with --minutes no limit]",
        ),
    ] = None
    minutes: Annotated[
        float | None, typer.Option(min=0, help="Stop after so many minutes; without --trials only then.")
    ] = None
    seed: SeedOption = 0


class Choices(NamedTuple):
    """The options of a job: those with a name of their own here, and any by `--option`."""

    recipe: Annotated[str | None, typer.Option(help=words("recipe"))] = None
    precision: Annotated[str | None, typer.Option(help=words("precision"))] = None
    mode: Annotated[str | None, typer.Option(help=words("mode"))] = None
    search: Annotated[str | None, typer.Option(help=words("search"))] = None
    cost_model: Annotated[str | None, typer.Option(help=words("cost_model"))] = None
    sampler: Annotated[str | None, typer.Option(help=words("sampler"))] = None
    stopping: Annotated[str | None, typer.Option(help=words("stopping"))] = None
    policy: Annotated[str | None, typer.Option(help=words("policy"))] = None
    families: Annotated[str | None, typer.Option(help=words("families"))] = None
    contention: Annotated[bool, typer.Option("--contention", help=said_of("contention"))] = False
    wait_for_quiet: Annotated[bool, typer.Option("--wait-for-quiet", help=said_of("wait_for_quiet"))] = False
    private: Annotated[bool, typer.Option("--private", help=said_of("private"))] = False
    round_size: Annotated[int | None, typer.Option(min=1, max=64, help=words("round_size"))] = None
    only: OnlyOption = None
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            "-o",
            metavar="NAME=VALUE",
            help="Any job option, as search=random or evaluator.repeat=3; repeatable.",
        ),
    ] = None
    input_shape: ShapeOption = None
    dynamic: DynamicOption = None

    def asked(self) -> OptionKwargs:
        """What was asked for by an option's own name, and then by --option."""
        named = {name: value for name, value in self._asdict().items() if name in JobOptions.model_fields}
        given = {name: value for name, value in named.items() if value is not None and value is not False}
        given |= {name: "on" for name, value in given.items() if value is True}
        if self.dynamic:
            given["dynamic"] = dict(map(parse_dynamic, self.dynamic))
        return cast(OptionKwargs, given | parse_options(self.option or [], self.input_shape or []))


def parse_options(pairs: Iterable[str], input_shapes: Iterable[str] = ()) -> dict[str, object]:
    """`["search=random", "evaluator.repeat=3"]` as nested options; a value is JSON where it reads as such."""
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
                raise InvalidRequest(f"the option {parent!r} is given as a value and as a group")
            group = inner
        try:
            group[last] = json.loads(value)
        except ValueError:
            group[last] = value
    shapes = dict(parse_input_shape(text) for text in input_shapes)
    return {**options, "input_shapes": shapes} if shapes else options


def parse_input_shape(text: str) -> tuple[str, list[int]]:
    """`x:1,3,224,224` as a name and its dimensions; the name may hold colons itself."""
    name, colon, dimensions = text.rpartition(":")
    sizes = dimensions.split(",")
    if not colon or not name or not all(size.strip().isdigit() for size in sizes):
        raise InvalidRequest(f"cannot read the input shape {text!r}", hint="--input-shape x:1,3,224,224")
    return name, [int(size) for size in sizes]


def parse_dynamic(text: str) -> tuple[str, list[int]]:
    """`batch=1..64` as a name, the least size and the largest; `batch=4` is one size."""
    name, equals, sizes = text.rpartition("=")
    low, dots, high = sizes.partition("..")
    bounds = [low, high if dots else low]
    if not equals or not name or not all(size.strip().isdigit() for size in bounds):
        raise InvalidRequest(f"cannot read the range {text!r}", hint="--dynamic batch=1..64")
    return name, [int(size) for size in bounds]
