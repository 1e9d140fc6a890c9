"""The command `mallorn`: its subcommands, and how errors are printed."""

import json
import os
import sys
import traceback
from collections.abc import Mapping
from types import TracebackType
from typing import Any, ClassVar, Final

import typer

from mallorn import __version__
from mallorn.cli.terminal.explain_error import MISTAKES, explain_error
from mallorn.cli.terminal.lazy_commands import LazyGroup
from mallorn.cli.terminal.option_groups import ListUnlessNamed, command_group
from mallorn.cli.terminal.output import print_error
from mallorn.core.errors import InvalidRequest, MallornError
from mallorn.core.format_text import escape_control_characters
from mallorn.core.redaction import redact

UsageError: Final[Any] = typer.BadParameter.__mro__[1]  # typer does not export it
# A command's module is imported to run the command or show help; it must not import large packages.
# A name without a colon is that of an entry point (mallorn.cli.terminal.lazy_commands).
SECTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "Tune a model": {
        "tune": "mallorn.cli.tune_and_resume:tune",
        "submit": "mallorn.cli.jobs:submit",
        "resume": "mallorn.cli.tune_and_resume:resume",
        "check": "mallorn.cli.check:check",
        "compile": "mallorn.cli.compile_and_bench:compile_model",
        "bench": "mallorn.cli.compile_and_bench:bench",
        "verify": "mallorn.cli.verify_and_retune:verify",
        "retune": "mallorn.cli.verify_and_retune:retune",
        "fetch": "mallorn.cli.schedules:fetch",
    },
    "Look at jobs and results": {
        "jobs": "mallorn.cli.main:jobs_app",
        "show": "mallorn.cli.jobs:show",
        "watch": "mallorn.cli.jobs:watch",
        "profile": "mallorn.cli.profile_kernels:profile",
    },
    "Share with a team": {
        "login": "mallorn.cli.login:login",
        "logout": "mallorn.cli.login:logout",
        "models": "mallorn.cli.models:app",
        "schedules": "mallorn.cli.schedules:app",
        "dataset": "mallorn.cli.dataset:app",
    },
    "Operate a service": {
        "up": "mallorn.cli.up:up",
        "serve": "mallorn.cli.run_service_part:serve",
        "worker": "mallorn.cli.run_service_part:worker",
        "device": "mallorn.cli.run_service_part:device",
        "control": "mallorn.cli.run_service_part:control",
        "tracker": "mallorn.cli.run_service_part:tracker",
        "migrate": "mallorn.cli.run_service_part:migrate",
        "doctor": "mallorn.cli.doctor:doctor",
        "devices": "mallorn.cli.devices_and_workers:app",
        "workers": "mallorn.cli.devices_and_workers:workers",
        "batch": "mallorn.cli.batch:app",
        "keys": "mallorn.cli.owners_and_keys:keys_app",
        "owners": "mallorn.cli.owners_and_keys:owners_app",
    },
    "Research": {
        "costmodels": "mallorn.cli.main:costmodels_app",
        "passes": "mallorn.cli.report_graph_passes:passes",
        "record": "record",
    },
}
JOB_COMMANDS: Final[Mapping[str, str]] = {
    "list": "mallorn.cli.jobs:jobs",
    "show": "mallorn.cli.jobs:show",
    "watch": "mallorn.cli.jobs:watch",
    "tasks": "mallorn.cli.jobs:tasks",
    "explain": "mallorn.cli.explain_and_compare:explain",
    "compare": "mallorn.cli.explain_and_compare:compare",
    "report": "mallorn.cli.explain_and_compare:report",
    "pause": "mallorn.cli.jobs:pause",
    "resume": "mallorn.cli.tune_and_resume:resume",
    "cancel": "mallorn.cli.jobs:cancel",
    "label": "mallorn.cli.jobs:label",
    "archive": "mallorn.cli.jobs:archive",
    "rm": "mallorn.cli.jobs:rm",
}
COST_MODEL_COMMANDS: Final[Mapping[str, str]] = {
    "list": "mallorn.cli.costmodels:list_models",
    "show": "mallorn.cli.costmodels:show",
    "activate": "mallorn.cli.costmodels:activate",
    "rollback": "mallorn.cli.costmodels:rollback",
    "evaluate": "costmodels.evaluate",
    "pretrain": "costmodels.pretrain",
}


class JobGroup(LazyGroup, ListUnlessNamed):
    locations: ClassVar = JOB_COMMANDS
    prefix: ClassVar = "jobs."


class CostModelGroup(LazyGroup, ListUnlessNamed):
    locations: ClassVar = COST_MODEL_COMMANDS
    prefix: ClassVar = "costmodels."


class MallornGroup(LazyGroup):
    """All commands, shown in sections; prints errors with the next command or as JSON."""

    locations: ClassVar = {name: place for section in SECTIONS.values() for name, place in section.items()}

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = formatter.width - 6 - max(map(len, self.locations))
        added = [name for name in self.list_commands(ctx) if name not in self.locations]
        for title, names in {**SECTIONS, **({"Of other packages": added} if added else {})}.items():
            with formatter.section(title):
                rows = [(name, self.get_command(ctx, name).get_short_help_str(width)) for name in names]
                formatter.write_dl(rows, col_max=width, col_spacing=2)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.obj = "--json" in args  # an error is then JSON, too
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        sys.excepthook = _show_fault  # replaces typer's, which prints secrets, too
        try:
            return super().invoke(ctx)
        except MallornError as error:
            raise _exit_with(error, ctx.obj) from None
        except BrokenPipeError:
            # The reader (head, less) closed the pipe; discard what is still buffered.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(1) from None
        except MISTAKES as error:
            if (explanation := explain_error(error)) is None:
                raise
            raise _exit_with(explanation, ctx.obj) from None
        except UsageError as error:
            if not ctx.obj:
                raise
            raise _exit_with(InvalidRequest(error.format_message()), True) from None


def _exit_with(error: MallornError, as_json: bool) -> typer.Exit:
    """Print an error, and return the exception that ends the program with its exit code."""
    if as_json:
        facts = {"kind": error.code, "message": error.message, "hint": error.hint}
        identity = {"request_id": error.request_id} if error.request_id else {}
        sys.stderr.write(json.dumps({**facts, "exit_code": error.exit_code, **identity}) + "\n")
    else:
        print_error(error.message, error.hint)
    return typer.Exit(error.exit_code)


def _show_fault(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print the traceback of an unexpected error, with secrets redacted."""
    text = redact("".join(traceback.format_exception(kind, error, trace)))
    sys.stderr.write(escape_control_characters(text))


def _print_version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(__version__)
        raise typer.Exit


app = typer.Typer(
    cls=MallornGroup, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False
)
jobs_app = command_group("List jobs, show one, stop or delete some.", JobGroup)
costmodels_app = command_group("Look at trained cost models, evaluate and pretrain them.", CostModelGroup)


@app.callback()
def main(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Make neural networks run faster on the hardware you own.

    On one machine:  mallorn tune model.onnx
    """
