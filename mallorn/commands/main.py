"""The command `mallorn`: which commands there are, and how an error ends one."""

import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

import typer
from typer.core import TyperGroup
from typer.main import get_command

from mallorn import __version__
from mallorn.commands.mistakes import MISTAKES, explained
from mallorn.commands.output import print_error
from mallorn.core.errors import MallornError

# A command's module is imported when the command runs or help is asked for; it must import nothing heavy.
COMMANDS: Final[list[tuple[str, str]]] = [
    ("tune", "mallorn.commands.tune:tune"),
    ("submit", "mallorn.commands.jobs:submit"),
    ("jobs", "mallorn.commands.jobs:jobs"),
    ("show", "mallorn.commands.jobs:show"),
    ("tasks", "mallorn.commands.jobs:tasks"),
    ("explain", "mallorn.commands.explain:explain"),
    ("compare", "mallorn.commands.compare:compare"),
    ("report", "mallorn.commands.report:report"),
    ("watch", "mallorn.commands.steer:watch"),
    ("pause", "mallorn.commands.steer:pause"),
    ("resume", "mallorn.commands.tune:resume"),
    ("cancel", "mallorn.commands.steer:cancel"),
    ("archive", "mallorn.commands.removal:archive"),
    ("rm", "mallorn.commands.removal:rm"),
    ("check", "mallorn.commands.check:check"),
    ("models", "mallorn.commands.models:app"),
    ("schedules", "mallorn.commands.data:schedules"),
    ("records", "mallorn.commands.data:records"),
    ("record", "mallorn.commands.record:record"),
    ("dataset", "mallorn.commands.dataset:app"),
    ("costmodels", "mallorn.commands.costmodels:app"),
    ("evaluate", "mallorn.commands.evaluate:evaluate"),
    ("pretrain", "mallorn.commands.pretrain:pretrain"),
    ("devices", "mallorn.commands.data:devices"),
    ("workers", "mallorn.commands.data:workers"),
    ("compile", "mallorn.commands.compile:compile_model"),
    ("bench", "mallorn.commands.compile:bench"),
    ("profile", "mallorn.commands.profile:profile"),
    ("up", "mallorn.commands.stack:up"),
    ("serve", "mallorn.commands.parts:serve"),
    ("worker", "mallorn.commands.parts:worker"),
    ("control", "mallorn.commands.parts:control"),
    ("tracker", "mallorn.commands.parts:tracker"),
    ("device", "mallorn.commands.device:device"),
    ("migrate", "mallorn.commands.parts:migrate"),
]


class LazyGroup(TyperGroup):
    """Loads a command's module on first use, and turns errors into what happened and what to type next."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [name for name, _ in COMMANDS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        location = dict(COMMANDS).get(cmd_name)
        return None if location is None else _command(cmd_name, location)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except MallornError as error:
            print_error(error.message, error.hint)
            raise typer.Exit(1) from None
        except BrokenPipeError:
            # The reader (head, less) has seen enough; what is still buffered has nowhere to go.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(1) from None
        except MISTAKES as error:
            if (said := explained(error)) is None:
                raise
            print_error(said.message, said.hint)
            raise typer.Exit(1) from None


def _command(name: str, location: str) -> Any:
    module, _, attribute = location.partition(":")
    function: Callable[..., Any] | typer.Typer = getattr(import_module(module), attribute)
    if isinstance(function, typer.Typer):
        return get_command(function)  # a group of its own
    single = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    single.command(name)(function)
    return get_command(single)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


app = typer.Typer(cls=LazyGroup, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.callback()
def main(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Make neural networks run faster on the hardware you own.

    On one machine:  mallorn tune model.onnx
    """
