"""The page of the command line."""

from collections.abc import Iterator
from enum import Enum
from typing import Any, Final

from typer.main import get_command

from mallorn.cli.main import SECTIONS, app
from tests.contract.reference.markdown import code, described, page, table

# In nearly every command: said once.
COMMON: Final = {
    "--json": "Print data as JSON.",
    "--url": "The coordinator; default: that of `MALLORN_URL`, else of `mallorn login`, else this machine's.",
    "--api-key": "The key to present to it; default: `MALLORN_API_KEY`, else the one of `mallorn login`.",
}


def cli_page() -> str:
    """Every command with its arguments and options."""
    lines = ["Options of most commands; the others stand with their command.", ""]
    lines += table(["option", "meaning"], [(code(name), words) for name, words in COMMON.items()])
    lines += ["[Exit codes and errors](errors.md), also as JSON.", ""]
    root: Any = get_command(app)
    for title, names in SECTIONS.items():
        lines += [f"## {title}", ""]
        for name in names:
            for command_name, command in _commands(f"mallorn {name}", root.get_command(None, name)):
                lines += _command(command_name, command)
    return page("Command line", *lines)


def _commands(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """The command itself, or those that it groups."""
    if not hasattr(command, "list_commands"):
        yield name, command
        return
    for each in command.list_commands(None):
        subcommand = command.get_command(None, each)
        if not subcommand.hidden:
            yield from _commands(f"{name} {each}", subcommand)


def _command(name: str, command: Any) -> list[str]:
    shown = [param for param in command.params if not getattr(param, "hidden", False)]
    own = [param for param in shown if not _common(param)]
    arguments = " ".join(_placeholder(p) for p in own if p.param_type_name == "argument")
    lines = [f"### {' '.join(filter(None, (name, arguments)))}", "", described(name, command.help), ""]
    if own:
        lines += table(["name", "default", "meaning"], [_param(name, param) for param in own])
    also = [code(param.opts[0]) for param in shown if _common(param)]
    return [*lines, *([f"Also {', '.join(also)}.", ""] if also else [])]


def _common(param: Any) -> bool:
    """Whether the page says it once; `watch --json` means something of its own."""
    name = param.opts[0]
    return name in COMMON and (name != "--json" or param.help == COMMON[name])


def _param(command: str, param: Any) -> tuple[str, str, str]:
    is_argument = param.param_type_name == "argument"
    name = _placeholder(param) if is_argument else ", ".join([*param.opts, *param.secondary_opts])
    choices = _choices(param)
    words = described(f"{command} {name}", param.help)
    if choices:
        words += " One of " + ", ".join(map(code, choices)) + "."
    if param.envvar:
        words += f" Read from {code(param.envvar)} where it is not given."
    return code(name), code(_default(param)), words


def _choices(param: Any) -> list[str]:
    """The values of an option that takes one of a few."""
    kind = param.type_descriptor.annotation
    members: dict[str, Any] = getattr(kind, "__members__", {})  # an enumeration's
    return [str(each.value) for each in members.values()]


def _placeholder(param: Any) -> str:
    return str(param.metavar or param.name.upper())


def _default(param: Any) -> str:
    value = param.default
    if param.required:
        return "required"
    if value is None or value is False or value in ([], ()) or callable(value):
        return ""
    return str(value.value if isinstance(value, Enum) else value)
