"""Command-line options that describe a job, and their parsers."""

import json
from collections.abc import Iterable
from typing import Annotated, NamedTuple, cast

import typer

from mallorn.core.check_option_kwargs import OptionKwargs
from mallorn.core.errors import InvalidRequest
from mallorn.core.job_options import LARGEST_ROUND, JobOptions, choices
from mallorn.core.registry import CONTRACTS
from mallorn.core.targets import LOCAL

TargetOption = Annotated[
    str, typer.Option("--target", help="`local`, `cuda`, a JSON target, or a tag like nvidia/nvidia-h100.")
]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Write into --out even if it holds other schedules or files.")
]
SeedOption = Annotated[int, typer.Option("--seed", help="Seed of every choice.")]


def known(option: str) -> str:
    """Return the names that an option accepts, separated by commas, for a help text."""
    return ", ".join(choices(option))


def said_of(option: str) -> str:
    """Return the description of a job option from its schema."""
    return str(JobOptions.model_fields[option].description)


def words(option: str) -> str:
    """Return an option's help text: its description, and the names it accepts, if any."""
    description = said_of(option)
    class_words = ", or MODULE:CLASS of your own" if option in CONTRACTS else ""
    return f"{description} One of {known(option)}{class_words}." if choices(option) else description


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
    """The target of a tuning job, its budget and its seed."""

    target: TargetOption = LOCAL
    trials: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Candidates to measure; 0: use known schedules, else defaults.   "
            "[default: as many as are worth their time; with --minutes no limit]",
        ),
    ] = None
    minutes: Annotated[
        float | None, typer.Option(min=0, help="Stop after this many minutes; without --trials, only then.")
    ] = None
    seed: SeedOption = 0


class Choices(NamedTuple):
    """Job options on the command line: a flag for some, `--option NAME=VALUE` for any."""

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
    round_size: Annotated[int | None, typer.Option(min=1, max=LARGEST_ROUND, help=words("round_size"))] = None
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
        """Return the options that the user gave; `--option` overrides the other flags."""
        flags = {name: value for name, value in self._asdict().items() if name in JobOptions.model_fields}
        options = {name: value for name, value in flags.items() if value is not None and value is not False}
        if self.dynamic:
            options["dynamic"] = dict(map(parse_dynamic, self.dynamic))
        return cast(OptionKwargs, options | parse_options(self.option or [], self.input_shape or []))


def parse_options(pairs: Iterable[str], input_shapes: Iterable[str] = ()) -> dict[str, object]:
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
                raise InvalidRequest(f"the option {parent!r} is given as a value and as a group")
            group = inner
        try:
            group[last] = json.loads(value)
        except ValueError:
            group[last] = value
    shapes = dict(parse_input_shape(text) for text in input_shapes)
    return {**options, "input_shapes": shapes} if shapes else options


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
