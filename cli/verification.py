"""Results of `mallorn verify`: the checks and their exit code, as JUnit XML and as Markdown."""

from collections.abc import Iterable
from enum import IntEnum, StrEnum
from typing import Final
from xml.etree import ElementTree

from mallorn.core.values.base import Value
from mallorn.core.values.finish_report import ModelLatency


class ExitCode(IntEnum):
    """Exit codes of `mallorn verify`; an error before the checks exits as all commands do."""

    PASSED = 0
    NOT_APPLIED = 10
    WRONG_NUMBERS = 11
    SLOWER = 12


class CheckKind(StrEnum):
    """What a check is about."""

    APPLIED = "applied"
    NUMBERS = "numbers"
    LATENCY = "latency"


class CheckOutcome(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    NOT_JUDGED = "not judged"


FAILURES: Final = {
    CheckKind.APPLIED: ExitCode.NOT_APPLIED,
    CheckKind.NUMBERS: ExitCode.WRONG_NUMBERS,
    CheckKind.LATENCY: ExitCode.SLOWER,
}
MARKS: Final = {CheckOutcome.PASSED: "✅", CheckOutcome.FAILED: "❌", CheckOutcome.NOT_JUDGED: "⚪"}


class Check(Value):
    """One check: of a workload's schedule, of the model's numbers or of its latency."""

    kind: CheckKind
    name: str
    outcome: CheckOutcome
    text: str = ""


class Verification(Value):
    """All checks of one run. It is kept as the proof for the same content."""

    model: str
    schedules: str
    checks: list[Check]
    latency_us: dict[str, ModelLatency]  # by engine: `tuned`, `baseline`
    seconds: float = 0.0

    @property
    def exit_code(self) -> ExitCode:
        """The code of the first failed check, in the order of the checks."""
        failed = (FAILURES[check.kind] for check in self.checks if check.outcome is CheckOutcome.FAILED)
        return next(failed, ExitCode.PASSED)


def judge_latency(tuned: ModelLatency, baseline: ModelLatency, tolerance: float) -> Check:
    """Return the check that compares two latencies of one sitting.

    It fails if the tuned model's median is slower than the tolerance allows, and the two
    confidence intervals show that this is no chance.
    """
    ratio = tuned.median / baseline.median
    is_slower = ratio > 1 + tolerance and tuned.low > baseline.high
    text = (
        f"{tuned.median:.0f} us, {ratio:.2f} times the baseline's {baseline.median:.0f} us; "
        f"{1 + tolerance:.2f} times are allowed"
    )
    if ratio > 1 + tolerance and not is_slower:
        text += ", and the difference is within the uncertainty of the timing"
    outcome = CheckOutcome.FAILED if is_slower else CheckOutcome.PASSED
    return Check(kind=CheckKind.LATENCY, name="latency", outcome=outcome, text=text)


def to_junit(verification: Verification) -> str:
    """Return the checks as a JUnit test suite; a check that was not judged is skipped."""
    counts = {outcome: _count(verification.checks, outcome) for outcome in CheckOutcome}
    suite = ElementTree.Element(
        "testsuite",
        name=f"mallorn verify {verification.model}",
        tests=str(len(verification.checks)),
        failures=str(counts[CheckOutcome.FAILED]),
        skipped=str(counts[CheckOutcome.NOT_JUDGED]),
        time=f"{verification.seconds:.1f}",
    )
    for check in verification.checks:
        case = ElementTree.SubElement(suite, "testcase", classname=check.kind, name=check.name)
        if check.outcome is CheckOutcome.FAILED:
            ElementTree.SubElement(case, "failure", message=check.text)
        elif check.outcome is CheckOutcome.NOT_JUDGED:
            ElementTree.SubElement(case, "skipped", message=check.text)
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def to_markdown(verification: Verification) -> str:
    """Return a heading, and a table of all checks but passed ones of single workloads."""
    applied = [check for check in verification.checks if check.kind is CheckKind.APPLIED]
    passed = _count(applied, CheckOutcome.PASSED)
    lines = [
        f"### mallorn verify {verification.model}",
        "",
        f"{passed} of {len(applied)} workloads of the compiled model come from a record "
        f"of `{verification.schedules}`.",
        "",
        "| | check | result |",
        "|---|---|---|",
    ]
    for check in verification.checks:
        if check.kind is not CheckKind.APPLIED or check.outcome is not CheckOutcome.PASSED:
            text = check.text.replace("|", "\\|").replace("\n", " ")
            lines.append(f"| {MARKS[check.outcome]} | {check.name} | {text} |")
    return "\n".join(lines) + "\n"


def _count(checks: Iterable[Check], outcome: CheckOutcome) -> int:
    return sum(check.outcome is outcome for check in checks)
