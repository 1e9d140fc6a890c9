"""Findings of checks; prints each as soon as its check ends."""

from collections.abc import Iterable
from dataclasses import dataclass

import typer

from cli.terminal.output import print_json, print_note, stdout


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of a check. Without a check that is not necessary the rest is of use."""

    name: str
    ok: bool
    words: str
    hint: str = ""
    necessary: bool = True


@dataclass(frozen=True, slots=True)
class States:
    """What a finding that is not well is called: one that is necessary, and one that is not."""

    bad: str
    weak: str


def tell(findings: Iterable[Finding], as_json: bool, states: States, all_well: str) -> None:
    """A line each, or all as JSON. Leaves with code 1 where something necessary is bad, else `all_well`."""
    found: list[Finding] = []
    for finding in findings:
        found.append(finding)
        if not as_json:
            state = "ok" if finding.ok else states.bad if finding.necessary else states.weak
            width = max(map(len, (states.bad, states.weak))) + 2
            stdout().print(f"{state:{width}}{finding.name:13}{finding.words}", markup=False)
            if finding.hint:
                stdout().print(f"{'':{width + 13}}next: {finding.hint}", markup=False)
    if as_json:
        print_json(found)
    if any(each.necessary and not each.ok for each in found):
        raise typer.Exit(1)
    if not as_json:
        print_note(all_well)
