"""Results of checks (findings), which are printed as soon as each check ends."""

from collections.abc import Iterable
from dataclasses import dataclass

import typer

from mallorn.cli.terminal.output import print_json, print_note, stdout
from mallorn.core.errors import ExitCode


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of a check; the command fails if the check failed and is `necessary`."""

    name: str
    ok: bool
    words: str
    hint: str = ""
    necessary: bool = True


def print_findings(
    findings: Iterable[Finding], as_json: bool, failed: str, warned: str, all_well: str
) -> None:
    """Print findings as lines or as JSON. Exits with a code if a necessary check failed.

    `failed` is the word for necessary checks that failed, `warned` that for others.
    """
    reported: list[Finding] = []
    for finding in findings:
        reported.append(finding)
        if not as_json:
            state = "ok" if finding.ok else failed if finding.necessary else warned
            width = max(len(failed), len(warned)) + 2
            stdout().print(f"{state:{width}}{finding.name:13}{finding.words}")
            if finding.hint:
                stdout().print(f"{'':{width + 13}}next: {finding.hint}")
    if as_json:
        print_json(reported)
    if any(finding.necessary and not finding.ok for finding in reported):
        raise typer.Exit(ExitCode.CHECK_FAILED)
    if not as_json:
        print_note(all_well)
