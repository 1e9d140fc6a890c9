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

from mallorn import __version__
from mallorn.cli.terminal.explain_error import MISTAKES, explain_error
from mallorn.cli.terminal.output import print_error
from mallorn.core.errors import MallornError
from mallorn.core.redaction import redact

# A command's module is imported to run the command or show help; it must not import large packages.
COMMANDS: Final[list[tuple[str, str]]] = [
    ("tune", "mallorn.cli.tune_and_resume:tune"),
    ("submit", "mallorn.cli.jobs:submit"),
    ("jobs", "mallorn.cli.jobs:jobs"),
    ("show", "mallorn.cli.jobs:show"),
    ("tasks", "mallorn.cli.jobs:tasks"),
    ("explain", "mallorn.cli.explain_and_compare:explain"),
    ("compare", "mallorn.cli.explain_and_compare:compare"),
    ("report", "mallorn.cli.explain_and_compare:report"),
    ("watch", "mallorn.cli.jobs:watch"),
    ("pause", "mallorn.cli.jobs:pause"),
    ("resume", "mallorn.cli.tune_and_resume:resume"),
    ("cancel", "mallorn.cli.jobs:cancel"),
    ("archive", "mallorn.cli.jobs:archive"),
    ("rm", "mallorn.cli.jobs:rm"),
    ("check", "mallorn.cli.check:check"),
    ("models", "mallorn.cli.models:app"),
    ("schedules", "mallorn.cli.schedules:app"),
    ("records", "mallorn.cli.records:records"),
    ("record", "mallorn.cli.record_measurements:record"),
    ("dataset", "mallorn.cli.dataset:app"),
    ("costmodels", "mallorn.cli.costmodels:app"),
    ("evaluate", "mallorn.cli.train_and_evaluate:evaluate"),
    ("pretrain", "mallorn.cli.train_and_evaluate:pretrain"),
    ("batch", "mallorn.cli.batch:app"),
    ("devices", "mallorn.cli.devices_and_workers:app"),
    ("workers", "mallorn.cli.devices_and_workers:workers"),
    ("compile", "mallorn.cli.compile_and_bench:compile_model"),
    ("bench", "mallorn.cli.compile_and_bench:bench"),
    ("verify", "mallorn.cli.verify:verify"),
    ("retune", "mallorn.cli.retune:retune"),
    ("profile", "mallorn.cli.profile_kernels:profile"),
    ("passes", "mallorn.cli.report_graph_passes:passes"),
    ("quantize", "mallorn.cli.quantize:quantize"),
    ("up", "mallorn.cli.up:up"),
    ("serve", "mallorn.cli.run_service_part:serve"),
    ("worker", "mallorn.cli.run_service_part:worker"),
    ("control", "mallorn.cli.run_service_part:control"),
    ("tracker", "mallorn.cli.run_service_part:tracker"),
    ("device", "mallorn.cli.serve_device:device"),
    ("keys", "mallorn.cli.owners_and_keys:keys_app"),
    ("owners", "mallorn.cli.owners_and_keys:owners_app"),
    ("audit", "mallorn.cli.owners_and_keys:audit"),
    ("doctor", "mallorn.cli.doctor:doctor"),
    ("migrate", "mallorn.cli.run_service_part:migrate"),
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
