"""Printing of a finished job's result: latency by engine, verdict and next command."""

import shlex
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from rich.text import Text

from mallorn.cli.terminal.output import print_next, print_note, stdout, table
from mallorn.client.onnx_export import CONVERTERS
from mallorn.core.values.finish_report import FinishReport
from mallorn.core.values.job import JobStatus
from mallorn.core.values.manifest import LIBRARY
from mallorn.core.values.verdict import Level, Verdict
from mallorn.wording.describe_results import describe_result, engine_columns, latency_rows
from mallorn.wording.format_values import insert_option

OF_FILES: Final = ("mallorn bench", "mallorn profile")
STYLES: Final = {Level.GOOD: "bold green", Level.FAIR: "bold yellow", Level.POOR: "bold red", Level.NONE: ""}


def print_tuned_job(job: JobStatus, directory: Path, model: str, resume_options: Sequence[str] = ()) -> None:
    """Print a finished job's result, the directory of its schedules and the next commands.

    `resume_options` are further options that `mallorn resume JOB` needs.
    """
    print_result(
        job, "".join(f" {shlex.quote(word)}" for word in resume_options), f"{model} --schedules {directory}"
    )
    print_library(job.report, directory / LIBRARY)
    check = command_that_checks(directory, model)
    checker = " with stock TVM alone" if check.startswith("python") else ""
    print_note(f"The schedules are in {directory}. Compile with them, or check them{checker}:")
    print_note(f"  mallorn compile {model} --schedules {directory} -o model.so")
    print_note(f"  {check}")


def command_that_checks(directory: Path, model: str) -> str:
    """Return the command that checks schedules: by stock TVM alone, which reads only ONNX,
    or else by Mallorn."""
    if Path(model).suffix.lower() in CONVERTERS:
        return f"mallorn verify {model} --schedules {directory}"
    return f"python {directory / 'apply.py'} {model} --check"


def print_library(report: FinishReport | None, file: Path) -> None:
    """Print where a job's library is and the command that calls it, or why it has none."""
    if report is not None and report.library is not None:
        print_note(f"{file} is the compiled model ({report.library.bytes / 1e6:.1f} MB). Load it with")
        print_note(f"""  python -c 'from mallorn_runtime import Session; print(Session("{file}").inputs)'""")
        if find_spec("mallorn_runtime") is None:
            print_note("after   pip install mallorn-runtime   (a wheel that lies beside Mallorn's)")
    elif report is not None and report.no_library_reason:
        print_note(f"There is no {file.name}. {report.no_library_reason}")


def print_result(job: JobStatus, words: str = "", files: str = "") -> None:
    """Print a finished job's figures and verdict; for `words` and `files` see `complete_command`."""
    latency_us = job.finish_report.latency_us
    if rows := latency_rows(latency_us):
        stdout().print(table(rows, engine_columns(latency_us)))
    for line in describe_result(job):
        stdout().print(line)
    print_verdict(job.verdict, words, files)


def print_fetch(job: JobStatus, words: str) -> None:
    """Print the command that fetches a job's schedules, if the job exported any."""
    if job.exported:
        print_note(f"fetch its schedules with   mallorn schedules {job.id}{words}")


def print_verdict(verdict: Verdict | None, words: str = "", files: str = "") -> None:
    """Print the verdict on a job's result, and the next command."""
    if verdict is None:
        return
    text = verdict.summary if verdict.level is Level.NONE else f"verdict: {verdict.summary}"
    stdout().print(Text(text, style=STYLES[verdict.level]), soft_wrap=True)
    if verdict.next_command:
        print_next(complete_command(verdict.next_command, words, files))


def complete_command(command: str, words: str = "", files: str = "") -> str:
    """Return a verdict's command with options for the same service and real file names."""
    verb = " ".join(command.split()[:2])
    if verb in OF_FILES:
        return f"{verb} {files}" if files else command
    return insert_option(command, words)
