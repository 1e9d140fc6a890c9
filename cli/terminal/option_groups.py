"""Options that several commands have are declared once, as a named tuple that a command takes whole."""

from collections.abc import Callable, Iterator
from functools import wraps
from inspect import Parameter, signature
from typing import Any, get_type_hints

Command = Callable[..., None]


def shared(command: Command) -> Command:
    """The command with the fields of every named tuple among its parameters as options of its own."""
    hints = get_type_hints(command, include_extras=True)
    groups = {name: kind for name, kind in hints.items() if hasattr(kind, "_fields")}
    parameters: list[Parameter] = []
    for name, each in signature(command).parameters.items():
        own = _options(groups[name]) if name in groups else [each.replace(annotation=hints[name])]
        parameters += (one.replace(kind=Parameter.KEYWORD_ONLY) for one in own)

    @wraps(command)
    def spread(**given: Any) -> None:
        for name, kind in groups.items():
            given[name] = kind(**{each: given.pop(each) for each in kind._fields})
        command(**given)

    spread.__signature__ = signature(command).replace(parameters=parameters)  # type: ignore[attr-defined]
    return spread


def _options(group: Any) -> Iterator[Parameter]:
    hints = get_type_hints(group, include_extras=True)
    for name in group._fields:
        default = group._field_defaults.get(name, Parameter.empty)
        yield Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=hints[name])
