"""Groups of options that several commands share, each declared as a named tuple."""

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from typing import Any, get_type_hints

Command = Callable[..., None]


def shared(command: Command) -> Command:
    """Return the command with an option for each field of its named-tuple parameters."""
    hints = get_type_hints(command, include_extras=True)
    groups = {name: kind for name, kind in hints.items() if hasattr(kind, "_fields")}
    parameters: list[Parameter] = []
    for name, parameter in signature(command).parameters.items():
        if name not in groups:
            parameters.append(parameter.replace(annotation=hints[name], kind=Parameter.KEYWORD_ONLY))
            continue
        for option, hint in get_type_hints(groups[name], include_extras=True).items():
            default = groups[name]._field_defaults.get(option, Parameter.empty)
            parameters.append(Parameter(option, Parameter.KEYWORD_ONLY, default=default, annotation=hint))

    @wraps(command)
    def spread(**values: Any) -> None:
        for name, kind in groups.items():
            values[name] = kind(**{option: values.pop(option) for option in kind._fields})
        command(**values)

    spread.__signature__ = signature(command).replace(parameters=parameters)  # type: ignore[attr-defined]
    return spread
