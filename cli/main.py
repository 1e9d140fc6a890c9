"""The command `mallorn`: its subcommands, and how errors are printed."""

import os
import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from types import TracebackType
from typing import Any, Final

import typer
from typer.core import TyperGroup
from typer.main import get_command

from cli.terminal.explain_error import MISTAKES, explain_error
from cli.terminal.output import print_error
from mallorn import __version__
from mallorn.core.errors import MallornError
from mallorn.core.redaction import redact

# A command's module is imported to run the command or show help; it must not import large packages.
COMMANDS: Final[list[tuple[str, str]]] = [
    ("tune", "cli.tune_and_resume:tune"),
    ("submit", "cli.jobs:submit"),
    ("jobs", "cli.jobs:jobs"),
    ("show", "cli.jobs:show"),
    ("tasks", "cli.jobs:tasks"),
    ("explain", "cli.explain_and_compare:explain"),
    ("compare", "cli.explain_and_compare:compare"),
    ("report", "cli.explain_and_compare:report"),
    ("watch", "cli.jobs:watch"),
    ("pause", "cli.jobs:pause"),
    ("resume", "cli.tune_and_resume:resume"),
    ("cancel", "cli.jobs:cancel"),
    ("archive", "cli.jobs:archive"),
    ("rm", "cli.jobs:rm"),
    ("check", "cli.check:check"),
    ("models", "cli.models:app"),
    ("schedules", "cli.schedules:app"),
    ("records", "cli.records:records"),
    ("record", "cli.record_measurements:record"),
    ("dataset", "cli.dataset:app"),
    ("costmodels", "cli.costmodels:app"),
    ("evaluate", "cli.train_and_evaluate:evaluate"),
    ("pretrain", "cli.train_and_evaluate:pretrain"),
    ("batch", "cli.batch:app"),
    ("devices", "cli.devices_and_workers:app"),
    ("workers", "cli.devices_and_workers:workers"),
    ("compile", "cli.compile_and_bench:compile_model"),
    ("bench", "cli.compile_and_bench:bench"),
    ("profile", "cli.profile_kernels:profile"),
    ("passes", "cli.report_graph_passes:passes"),
    ("quantize", "cli.quantize:quantize"),
    ("up", "cli.up:up"),
    ("serve", "cli.run_service_part:serve"),
    ("worker", "cli.run_service_part:worker"),
    ("control", "cli.run_service_part:control"),
    ("tracker", "cli.run_service_part:tracker"),
    ("device", "cli.serve_device:device"),
    ("keys", "cli.owners_and_keys:keys_app"),
    ("owners", "cli.owners_and_keys:owners_app"),
    ("audit", "cli.owners_and_keys:audit"),
    ("doctor", "cli.doctor:doctor"),
    ("migrate", "cli.run_service_part:migrate"),
]


class LazyGroup(TyperGroup):
    """Imports a command's module when it is used; prints errors with the next command."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [name for name, _ in COMMANDS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        location = dict(COMMANDS).get(cmd_name)
        if location is None:
            return None
        module, _, attribute = location.partition(":")
        function: Callable[..., Any] | typer.Typer = getattr(import_module(module), attribute)
        if isinstance(function, typer.Typer):
            return get_command(function)  # a group of commands
        single = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
        single.command(cmd_name)(function)
        return get_command(single)

    def invoke(self, ctx: Any) -> Any:
        sys.excepthook = _show_fault  # replaces typer's, which prints secrets, too
        try:
            return super().invoke(ctx)
        except MallornError as error:
            print_error(error.message, error.hint)
            raise typer.Exit(1) from None
        except BrokenPipeError:
            # The reader (head, less) closed the pipe; discard what is still buffered.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(1) from None
        except MISTAKES as error:
            if (explanation := explain_error(error)) is None:
                raise
            print_error(explanation.message, explanation.hint)
            raise typer.Exit(1) from None


def _show_fault(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print the traceback of an unexpected error, with secrets redacted."""
    sys.stderr.write(redact("".join(traceback.format_exception(kind, error, trace))))


def _print_version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(__version__)
        raise typer.Exit


app = typer.Typer(cls=LazyGroup, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.callback()
def main(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Make neural networks run faster on the hardware you own.

    On one machine:  mallorn tune model.onnx
    """
