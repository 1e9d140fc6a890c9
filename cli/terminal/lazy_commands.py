"""Groups of commands, also of installed packages, that are imported when used."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, ClassVar

import typer
from typer.core import TyperGroup
from typer.main import get_command

from mallorn.cli.terminal.option_groups import expand_option_groups
from mallorn.core.errors import MallornError, MissingPackage, PluginFailed, UnknownName
from mallorn.core.registry import find_plugins, list_names, resolve

#: Seam of commands in the registry. `GROUP.NAME` is the command NAME of a group.
COMMANDS = "commands"


class LazyGroup(TyperGroup):
    """Imports a command's module when it is used, and gives commands the options of their groups.

    Installed packages add commands by entry points in the group ``mallorn.commands``. A
    location without a colon is the name of such an entry point.
    """

    locations: ClassVar[Mapping[str, str]] = {}
    prefix: ClassVar[str] = ""

    def list_commands(self, ctx: Any) -> list[str]:
        added = {*find_plugins(COMMANDS), *list_names(COMMANDS)}
        names = {name.removeprefix(self.prefix) for name in added if name.startswith(self.prefix)}
        own = [*super().list_commands(ctx), *self.locations]
        return own + sorted(name for name in names if "." not in name and name not in own)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if (defined := super().get_command(ctx, cmd_name)) is not None:
            return defined
        location = self.locations.get(cmd_name, f"{self.prefix}{cmd_name}")
        module, colon, attribute = location.partition(":")
        function: Callable[..., Any] | typer.Typer
        settings: dict[str, bool] = {}
        if colon:
            function = getattr(import_module(module), attribute)
        else:
            try:
                function = resolve(COMMANDS, location)
            except UnknownName:
                return None
            except (MissingPackage, PluginFailed) as error:
                # Accepts any arguments, and raises the error when it is called.
                function = _raise_when_called(error)
                settings = {"ignore_unknown_options": True, "allow_extra_args": True}
        if isinstance(function, typer.Typer):
            app = function  # a group of commands
        else:
            app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
            app.command(cmd_name, context_settings=settings)(function)
        for command in app.registered_commands:
            command.callback = command.callback and expand_option_groups(command.callback)
        return get_command(app)


def _raise_when_called(error: MallornError) -> Callable[[], None]:
    def command() -> None:
        raise error

    command.__doc__ = f"Not available:  {error.hint}"
    return command
