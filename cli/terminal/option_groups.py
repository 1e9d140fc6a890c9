"""Groups of options that commands share, and groups of commands that list unless told otherwise."""

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, isfunction, signature
from typing import Any, get_type_hints

import typer
from typer.core import TyperGroup

from mallorn.client.logins import current_url

Command = Callable[..., None]


class ListUnlessNamed(TyperGroup):
    """Treats `mallorn GROUP [OPTIONS]` as `mallorn GROUP list [OPTIONS]`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        is_list = not args or (args[0].startswith("-") and args[0] != "--help")
        return super().parse_args(ctx, ["list", *args] if is_list else args)


def command_group(help_text: str, kind: type[TyperGroup] = ListUnlessNamed) -> typer.Typer:
    """Return a group of commands; without a command, other kinds than ListUnlessNamed show help."""
    group = typer.Typer(cls=kind, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    group.callback(help=help_text, no_args_is_help=not issubclass(kind, ListUnlessNamed))(lambda: None)
    return group


def expand_option_groups(command: Command) -> Command:
    """Return the command with all options of its groups; an expanded command as it is.

    A group is a parameter whose type is a named tuple, or `Annotated[TYPE, FUNCTION]`; the
    function takes the options and returns the parameter's value. Without `--url` and
    `--data`, the command gets the URL that `mallorn login` keeps.
    """
    if hasattr(command, "__signature__"):
        return command
    hints = get_type_hints(command, include_extras=True)
    builders = {name: getattr(hint, "__metadata__", (hint,))[-1] for name, hint in hints.items()}
    groups = {
        name: build for name, build in builders.items() if isfunction(build) or hasattr(build, "_fields")
    }
    parameters: list[Parameter] = []
    for name, parameter in signature(command).parameters.items():
        if name in groups:
            parameters += signature(groups[name]).parameters.values()
        else:
            parameters.append(parameter.replace(annotation=hints[name]))
    parameters = [parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in parameters]

    @wraps(command)
    def spread(**values: Any) -> None:
        if "url" in values and not values.get("data"):
            values["url"] = values["url"] or current_url()
        for name, build in groups.items():
            values[name] = build(**{option: values.pop(option) for option in signature(build).parameters})
        command(**values)

    spread.__signature__ = signature(command).replace(parameters=parameters)  # type: ignore[attr-defined]
    return spread
