"""`mallorn verify`: a gate for CI that proves schedules applied, right and not slower."""

import io
import os
import subprocess
import tarfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from enum import IntEnum, StrEnum
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Final
from xml.etree import ElementTree

import typer

from mallorn.cli.compile_and_bench import (
    ModelArgument,
    SchedulesOption,
    TargetOption,
    VersionOption,
    WrongNumbers,
    check_library_outputs,
)
from mallorn.cli.remote_directory import open_directory
from mallorn.cli.schedule_directory import (
    ScheduleDirectory,
    local_model,
    read_schedule_directory,
)
from mallorn.cli.terminal.output import JsonOption, print_json, print_note, stdout
from mallorn.core.errors import InvalidRequest
from mallorn.core.storable_json import read_json
from mallorn.core.values.base import Value
from mallorn.core.values.finish_report import FinishReport, ModelLatency
from mallorn.core.values.manifest import DATABASE, MANIFEST, Version
from mallorn.onnx_export import as_onnx, find_model_file
from mallorn.refuse_to_overwrite import model_id_of
from mallorn.results.speedup import TUNED

if TYPE_CHECKING:
    from mallorn.workers.interfaces.model_compiler import Compiled
    from mallorn.workers.whole_model.compiled_model import WholeModel

BASELINE: Final = "baseline"
REPORT: Final = "report.json"
ANOTHER_MACHINE: Final = "kept on another class of machine"


class ExitCode(IntEnum):
    """Exit codes of `mallorn verify`; an error before the checks exits with 1."""

    PASSED = 0
    NOT_APPLIED = 10
    WRONG_NUMBERS = 11
    SLOWER = 12


class CheckKind(StrEnum):
    """Subject of a check."""

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
MARKS: Final = {
    CheckOutcome.PASSED: "✅",
    CheckOutcome.FAILED: "❌",
    CheckOutcome.NOT_JUDGED: "⚪",
}


class Check(Value):
    """Check of a workload's schedule, of the model's numbers or of its latency."""

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
        codes = (FAILURES[check.kind] for check in self.checks if check.outcome is CheckOutcome.FAILED)
        return next(codes, ExitCode.PASSED)


def judge_latency(latency: ModelLatency, baseline: ModelLatency, tolerance: float) -> Check:
    """Return the check that compares two latencies of one sitting.

    It fails if the tuned model's median is slower than the tolerance allows, and the two
    confidence intervals show that this is no chance.
    """
    ratio = latency.median / baseline.median
    is_slower = ratio > 1 + tolerance and latency.low > baseline.high
    text = (
        f"{latency.median:.0f} us, {ratio:.2f} times the baseline's {baseline.median:.0f} us; "
        f"{1 + tolerance:.2f} times are allowed"
    )
    if ratio > 1 + tolerance and not is_slower:
        text += ", and the difference is within the uncertainty of the timing"
    outcome = CheckOutcome.FAILED if is_slower else CheckOutcome.PASSED
    return _latency(outcome, text)


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
    workloads = [check for check in verification.checks if check.kind is CheckKind.APPLIED]
    count = _count(workloads, CheckOutcome.PASSED)
    lines = [
        f"### mallorn verify {verification.model}",
        "",
        f"{count} of {len(workloads)} workloads of the compiled model come from a record "
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


def verify(
    model: ModelArgument,
    schedules: SchedulesOption,
    target: TargetOption = None,
    version: VersionOption = Version.ALONE,
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="DIR|FILE.so|REF",
            help="Schedules, a library or a git revision of DIR, timed in turn.",
        ),
    ] = None,
    tolerance: Annotated[
        float,
        typer.Option(min=0, help="Accepted slowdown against the baseline; 0.1 is 10 %."),
    ] = 0.1,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the checks as JUnit XML.")] = None,
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a summary as Markdown.")
    ] = None,
    proofs: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where passed runs are kept.   [default: ~/.cache/mallorn/proofs]",
        ),
    ] = None,
    ignores_proofs: Annotated[
        bool, typer.Option("--again", help="Check even if a kept proof says it passed.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Prove that schedules are applied, that numbers are right and that nothing is slower.

    Exits with 0 if so, 10 if a workload has no schedule that applies, 11 for wrong numbers,
    12 if the model is slower than the baseline, and 1 if it could not be checked.
    """
    model, exported = (
        find_model_file(model),
        read_schedule_directory(schedules, target, version),
    )
    began_sec = time.monotonic()
    with find_baseline(schedules, baseline) as rival_path:
        key = proof_key(model, exported, rival_path, tolerance)
        proof = (
            proofs or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mallorn" / "proofs"
        ) / f"{key}.json"
        verification = None if ignores_proofs else read_proof(proof)
        if verification is None:
            verification = verify_model(model, exported, rival_path, tolerance)
            verification = verification.model_copy(update={"seconds": round(time.monotonic() - began_sec, 1)})
            if verification.exit_code is ExitCode.PASSED:
                proof.parent.mkdir(parents=True, exist_ok=True)
                proof.write_text(verification.model_dump_json() + "\n")
        else:
            print_note(f"nothing changed since {proof}; to check again   --again")
    for path, text in (
        (junit, to_junit(verification)),
        (markdown, to_markdown(verification)),
    ):
        if path is not None:
            path.write_text(text)
    if as_json:
        print_json(verification.model_dump(mode="json") | {"exit_code": int(verification.exit_code)})
    else:
        print_verification(verification)
    raise typer.Exit(int(verification.exit_code))


def proof_key(model: Path, exported: ScheduleDirectory, baseline: Path | None, tolerance: float) -> str:
    """Return a digest of everything that a verification depends on.

    These are the bytes of model, manifest, records and baseline, the code that compiles, the
    class of the machine, and the tolerance.
    """
    from mallorn.workers.device.detect_host import read_host_facts
    from mallorn.workers.tvm.code_digest import code_digest

    with as_onnx(model) as file:
        model_id = model_id_of(file)
    baseline_files = (
        [] if baseline is None else [baseline, *(baseline / name for name in (MANIFEST, *DATABASE))]
    )
    parts = [
        model_id,
        _digest(exported.directory / MANIFEST),
        *_digests(exported),
        *map(_digest, baseline_files),
        code_digest(),
        read_host_facts()["host_class"],
        exported.target.text,
        str(tolerance),
    ]
    return sha256("\n".join(parts).encode()).hexdigest()[:32]


def _digests(exported: ScheduleDirectory) -> list[str]:
    return [_digest(exported.file(name)) for name in DATABASE]


def _digest(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest() if path.is_file() else "absent"


def read_proof(path: Path) -> Verification | None:
    """Return a kept verification that passed; None if there is none or it is damaged."""
    try:
        verification = Verification.model_validate(read_json(path.read_bytes()))
    except (OSError, ValueError):
        return None
    return verification if verification.exit_code is ExitCode.PASSED else None


@contextmanager
def find_baseline(schedules: Path, baseline: str | None) -> Iterator[Path | None]:
    """Yield the baseline's directory or library; take a git revision's files from git.

    Raises InvalidRequest if it is neither a path nor a revision that has the directory.
    """
    if baseline is None or Path(baseline).exists():
        yield None if baseline is None else Path(baseline)
        return
    if "://" in baseline:
        with open_directory(baseline) as folder:
            yield folder
        return
    # `git archive` in a subdirectory archives only that, with relative paths.
    command = [
        "git",
        "-C",
        str(schedules),
        "archive",
        "--format=tar",
        "--end-of-options",
        baseline,
    ]
    try:
        archive = subprocess.run(command, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        output = error.stderr if isinstance(error, subprocess.CalledProcessError) else b""
        reason = output.decode(errors="replace").strip() or str(error)
        message = f"--baseline {baseline} is no path, and git has no such revision of {schedules}: {reason}"
        raise InvalidRequest(
            message, hint="--baseline DIR, FILE.so, or a revision such as origin/main"
        ) from None
    with TemporaryDirectory(prefix="mallorn-baseline-") as scratch:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            tar.extractall(scratch, filter="data")
        yield Path(scratch)


def verify_model(
    model: Path, exported: ScheduleDirectory, baseline: Path | None, tolerance: float
) -> Verification:
    rival = None
    if baseline is not None and baseline.is_dir():
        rival = read_schedule_directory(baseline, None, exported.version)
        if rival.target != exported.target:
            message = f"the baseline is for {rival.target}, not for {exported.target}"
            raise InvalidRequest(message, hint="--baseline of the same target")
    elif baseline is None:
        print_note("no --baseline: the latency is compared with the report's")
    readable = () if baseline is None else (baseline,)
    with local_model(model, exported, readable_paths=readable) as whole_model:
        library = whole_model.folder / "tuned.so"
        print_note(f"compiling for {exported.target}")
        build = whole_model.compile(exported.create_database_folder(whole_model.folder), library)
        checks = check_applied(build, exported)
        if build.found:
            checks.append(check_numbers(whole_model, library))
        latency_us: Mapping[str, ModelLatency] = {}
        if any(check.outcome is CheckOutcome.FAILED for check in checks):
            print_note("the model is not timed, because it is not as it was tuned")
        elif rival is not None and _digests(rival) == _digests(exported):
            text = "the baseline has the same records, so there is nothing to time"
            checks.append(_latency(CheckOutcome.PASSED, text))
        else:
            libraries = {TUNED: library}
            if rival is not None:
                libraries[BASELINE] = whole_model.folder / "baseline.so"
                rival_model = replace(whole_model, recipe=rival.manifest.recipe)
                rival_model.compile(rival.create_database_folder(whole_model.folder), libraries[BASELINE])
            elif baseline is not None:
                libraries[BASELINE] = baseline.absolute()
            latency_us, latency_check = check_latency(whole_model, libraries, exported, tolerance)
            checks.append(latency_check)
    return Verification(
        model=model.name,
        schedules=str(exported.directory),
        checks=checks,
        latency_us=dict(latency_us),
    )


def check_applied(build: "Compiled", exported: ScheduleDirectory) -> list[Check]:
    """Return a check per workload and per record that cannot be used.

    The proof is the compiled module: TVM marks each function that it took from a record. A
    workload for which the job found no schedule, as the manifest says, is not judged.
    """
    unmarked = build.of - len(build.missing) - len(build.applied)
    checks = [_applied(name, CheckOutcome.PASSED, "from a record") for name in build.applied]
    if unmarked:
        text = f"{unmarked} workloads have a record that was not applied"
        checks.append(_applied("compiled module", CheckOutcome.FAILED, text))
    for name in build.missing:
        is_known = name in exported.manifest.without_schedule
        text = "the job found no schedule" if is_known else "no record applies"
        checks.append(_applied(name, CheckOutcome.NOT_JUDGED if is_known else CheckOutcome.FAILED, text))
    for problem in build.problems:
        name = f"{exported.version.file(problem.file)}, line {problem.line}"
        checks.append(_applied(name, CheckOutcome.FAILED, problem.error))
    return checks


def _latency(outcome: CheckOutcome, text: str) -> Check:
    return Check(kind=CheckKind.LATENCY, name="latency", outcome=outcome, text=text)


def _applied(name: str, outcome: CheckOutcome, text: str) -> Check:
    return Check(kind=CheckKind.APPLIED, name=name, outcome=outcome, text=text)


def check_numbers(whole_model: "WholeModel", library: Path) -> Check:
    try:
        error = check_library_outputs(whole_model, library)
    except WrongNumbers as wrong:
        return Check(
            kind=CheckKind.NUMBERS,
            name="numbers",
            outcome=CheckOutcome.FAILED,
            text=wrong.message,
        )
    text = f"relative error against the untuned model: {error:.1e}"
    return Check(kind=CheckKind.NUMBERS, name="numbers", outcome=CheckOutcome.PASSED, text=text)


def check_latency(
    whole_model: "WholeModel",
    libraries: Mapping[str, Path],
    exported: ScheduleDirectory,
    tolerance: float,
) -> tuple[Mapping[str, ModelLatency], Check]:
    """Time the libraries in turn; judge the tuned one by the baseline or the report."""
    from mallorn.workers.device.detect_host import read_host_facts
    from mallorn.workers.host.host_lock import HostLock
    from mallorn.workers.whole_model.engines import Engines

    with Engines(whole_model, libraries) as engines:
        engines.load(libraries)
        with HostLock().hold_exclusive() as is_alone:
            race = engines.time_undisturbed(is_alone)
    latency = race.latency_us[TUNED]
    if BASELINE in libraries:
        return race.latency_us, judge_latency(latency, race.latency_us[BASELINE], tolerance)
    report_latency = read_kept_latency(exported)
    text = f"{latency.median:.0f} us"
    if report_latency is None:
        reason = "no latency is kept beside the schedules"
    else:
        kept_class, own_class = (
            exported.manifest.measured_on.host_class,
            read_host_facts()["host_class"],
        )
        if kept_class != own_class:
            reason = f"{report_latency.median:.0f} us were {ANOTHER_MACHINE}: {kept_class}, here {own_class}"
        elif race.conditions.note:
            reason = f"{report_latency.median:.0f} us are kept, but now: {race.conditions.note}"
        else:
            return race.latency_us, judge_latency(latency, report_latency, tolerance)
    check = Check(
        kind=CheckKind.LATENCY,
        name="latency",
        outcome=CheckOutcome.NOT_JUDGED,
        text=f"{text}; {reason}",
    )
    return race.latency_us, check


def read_kept_latency(exported: ScheduleDirectory) -> ModelLatency | None:
    """Return the latency in the report beside the schedules; None if unknown."""
    try:
        report = FinishReport.model_validate(read_json((exported.directory / REPORT).read_bytes()))
    except (OSError, ValueError):
        return None
    return report.latency_us.get(TUNED) if exported.version is Version.ALONE else None


def print_verification(verification: Verification) -> None:
    workloads = [check for check in verification.checks if check.kind is CheckKind.APPLIED]
    count = sum(check.outcome is CheckOutcome.PASSED for check in workloads)
    stdout().print(f"{count} of {len(workloads)} workloads come from a record")
    for check in verification.checks:
        if check.kind is not CheckKind.APPLIED or check.outcome is not CheckOutcome.PASSED:
            stdout().print(f"{check.outcome}: {check.name}: {check.text}", markup=False)
    code = verification.exit_code
    stdout().print("verified" if code is ExitCode.PASSED else f"not verified: {code.name} (exit code {code})")
