"""`mallorn verify`: a gate for CI that proves schedules applied, right and not slower."""

import os
import shutil
import subprocess
import tarfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Final, Literal
from xml.etree import ElementTree

import typer

from mallorn.cli.compile_and_bench import (
    ModelArgument,
    SchedulesOption,
    TargetOption,
    VersionOption,
    WrongNumbers,
    check_library_outputs,
    time_engines,
)
from mallorn.cli.schedule_directory import ScheduleDirectory, local_model, read_schedule_directory
from mallorn.cli.terminal.output import JsonOption, print_json, print_note, stdout, table
from mallorn.core.errors import ExitCode, InvalidRequest
from mallorn.core.storable_json import read_json
from mallorn.core.values.base import Value
from mallorn.core.values.finish_report import FinishReport, ModelLatency
from mallorn.core.values.manifest import DATABASE, MANIFEST, REPORT, Version
from mallorn.http import sha256_of
from mallorn.onnx_export import as_onnx, find_model_file
from mallorn.refuse_to_overwrite import model_id_of
from mallorn.results.speedup import TUNED
from mallorn.wording.format_values import Column

if TYPE_CHECKING:
    from mallorn.workers.interfaces.model_compiler import Compiled

BASELINE: Final = "baseline"
Kind = Literal["applied", "numbers", "latency"]
Outcome = Literal["passed", "failed", "not judged"]
EXIT_CODES: Final[Mapping[Kind, ExitCode]] = {
    "applied": ExitCode.NOT_APPLIED,
    "numbers": ExitCode.CHECK_FAILED,
    "latency": ExitCode.SLOWER,
}


class Check(Value):
    """Check of a workload's schedule, of the model's numbers or of its latency."""

    kind: Kind
    name: str
    outcome: Outcome
    text: str = ""


CHECK_COLUMNS: Final = (
    Column[Check]("CHECK", lambda check: check.name),
    Column[Check]("OUTCOME", lambda check: check.outcome),
    Column[Check]("RESULT", lambda check: check.text),
)


class Verification(Value):
    """All checks of one run. It is kept as the proof for the same content."""

    model: str
    schedules: str
    checks: list[Check]
    latency_us: Mapping[str, ModelLatency] = {}  # by engine: `tuned`, `baseline`
    seconds: float = 0.0

    @property
    def exit_code(self) -> int:
        """Code of the first failed check; 0 if none failed."""
        return next((EXIT_CODES[check.kind] for check in self.checks if check.outcome == "failed"), 0)

    @property
    def headline(self) -> str:
        applied = [check.outcome == "passed" for check in self.checks if check.kind == "applied"]
        return f"{sum(applied)} of {len(applied)} workloads of the compiled model come from a record"

    @property
    def notable_checks(self) -> list[Check]:
        """All checks except workloads that passed."""
        return [check for check in self.checks if (check.kind, check.outcome) != ("applied", "passed")]


def to_junit(verification: Verification) -> str:
    """Return the checks as a JUnit test suite; a check that was not judged is skipped."""
    elements = {"failed": "failure", "not judged": "skipped"}
    outcomes = [check.outcome for check in verification.checks]
    suite = ElementTree.Element(
        "testsuite",
        name=f"mallorn verify {verification.model}",
        tests=str(len(outcomes)),
        failures=str(outcomes.count("failed")),
        skipped=str(outcomes.count("not judged")),
        time=str(verification.seconds),
    )
    for check in verification.checks:
        case = ElementTree.SubElement(suite, "testcase", classname=check.kind, name=check.name)
        if check.outcome in elements:
            ElementTree.SubElement(case, elements[check.outcome], message=check.text)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def to_markdown(verification: Verification) -> str:
    """Return a heading, and a table of all checks except workloads that passed."""
    rows = [(check.name, check.outcome, check.text) for check in verification.notable_checks]
    lines = [f"### mallorn verify {verification.model}", "", f"{verification.headline}.", ""]
    for row in (("check", "outcome", "result"), ("---",) * 3, *rows):
        cells = (text.replace("|", "\\|").replace("\n", " ") for text in row)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def verify(
    model: ModelArgument,
    schedules: SchedulesOption,
    target: TargetOption = None,
    version: VersionOption = Version.ALONE,
    baseline: Annotated[
        str | None,
        typer.Option(metavar="DIR|REF", help="Schedules or a git revision, timed in turn."),
    ] = None,
    tolerance: Annotated[
        float, typer.Option(min=0, help="Accepted slowdown against the baseline; 0.1 is 10 %.")
    ] = 0.1,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the checks as JUnit XML.")] = None,
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a summary as Markdown.")
    ] = None,
    ignores_proofs: Annotated[
        bool, typer.Option("--again", help="Check even if a kept proof says it passed.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Prove that schedules are applied, that numbers are right and that nothing is slower."""
    began_sec = time.monotonic()
    model, exported = find_model_file(model), read_schedule_directory(schedules, target, version)
    with find_baseline(schedules, baseline) as folder:
        rival = None if folder is None else read_schedule_directory(folder, exported.target.text, version)
        proof = proof_file(model, exported, rival, tolerance)
        verification = None if ignores_proofs else read_proof(proof)
        if verification is not None:
            print_note(f"nothing changed since {proof}; to check again   --again")
        else:
            verification = verify_model(model, exported, rival, tolerance)
            seconds = round(time.monotonic() - began_sec, 1)
            verification = verification.model_copy(update={"seconds": seconds})
            if verification.exit_code == 0:
                proof.parent.mkdir(parents=True, exist_ok=True)
                proof.write_text(verification.model_dump_json() + "\n")
    for path, write in ((junit, to_junit), (markdown, to_markdown)):
        if path is not None:
            path.write_text(write(verification))
    if as_json:
        print_json(verification)
    else:
        stdout().print(verification.headline)
        stdout().print(table(verification.notable_checks, CHECK_COLUMNS))
    raise typer.Exit(verification.exit_code)


def proof_file(
    model: Path, exported: ScheduleDirectory, baseline: ScheduleDirectory | None, tolerance: float
) -> Path:
    """Return the file that keeps a passed run, named by a digest of all that it depends on: the
    bytes of model, manifests and records, the code that compiles, the machine's class and the
    tolerance. It lies in the user's cache, so that no change of the schedules changes a proof."""
    from mallorn.workers.device.detect_host import read_host_facts
    from mallorn.workers.tvm.code_digest import code_digest

    with as_onnx(model) as file:
        parts = [model_id_of(file), exported.target.text, code_digest(), str(tolerance)]
    parts += [read_host_facts()["host_class"], *_digests(exported), *(_digests(baseline) if baseline else ())]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "mallorn" / "proofs" / f"{sha256(' '.join(parts).encode()).hexdigest()}.json"


def _digests(exported: ScheduleDirectory) -> list[str]:
    files = exported.directory / MANIFEST, *map(exported.file, DATABASE)
    return [sha256_of(file) if file.is_file() else "absent" for file in files]


def read_proof(path: Path) -> Verification | None:
    """Return a kept verification; None if there is none or it is damaged."""
    try:
        return Verification.model_validate(read_json(path.read_bytes()))
    except (OSError, ValueError):
        return None


@contextmanager
def find_baseline(schedules: Path, baseline: str | None) -> Iterator[Path | None]:
    """Yield the baseline's directory; take a git revision's files from git.

    Raises InvalidRequest if it is neither a directory nor a revision that has the schedules.
    """
    if baseline is None or Path(baseline).is_dir():
        yield None if baseline is None else Path(baseline)
        return
    with TemporaryDirectory(prefix="mallorn-baseline-") as scratch:
        file = Path(scratch, "baseline.tar")
        # In a subdirectory, `git archive` writes only that, with relative paths.
        command = ["git", "-C", str(schedules), "archive", f"--output={file}", "--end-of-options", baseline]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode:
            message = f"--baseline {baseline}: no directory, and no git revision with {schedules}"
            hint = "--baseline DIR, or a revision such as origin/main"
            raise InvalidRequest(f"{message}: {result.stderr.strip()}", hint=hint)
        with tarfile.open(file) as archive:
            archive.extractall(scratch, filter="data")
        yield Path(scratch)


def verify_model(
    model: Path, exported: ScheduleDirectory, rival: ScheduleDirectory | None, tolerance: float
) -> Verification:
    """Compile the model and check it; time it in turn with the baseline's schedules."""
    latency_us: Mapping[str, ModelLatency] = {}
    with local_model(model, exported) as whole_model:
        libraries = {TUNED: whole_model.folder / "tuned.so"}
        print_note(f"compiling for {exported.target}")
        build = whole_model.compile(exported.create_database_folder(whole_model.folder), libraries[TUNED])
        checks = check_applied(build, exported)
        if build.found:
            try:
                error = check_library_outputs(whole_model, libraries[TUNED])
                text = f"relative error against the untuned model: {error:.1e}"
                checks.append(Check(kind="numbers", name="numbers", outcome="passed", text=text))
            except WrongNumbers as wrong:
                checks.append(Check(kind="numbers", name="numbers", outcome="failed", text=wrong.message))
        if any(check.outcome == "failed" for check in checks):
            print_note("the model is not timed, because a check failed")
        elif rival is not None and _digests(rival) == _digests(exported):
            checks.append(_latency("passed", "the baseline has the same schedules, so nothing was timed"))
        else:
            if rival is not None:
                libraries[BASELINE] = whole_model.folder / "baseline.so"
                # The child process can read copies in the model's folder, but no other directory.
                (copy := whole_model.folder / BASELINE).mkdir()
                for name in DATABASE:
                    shutil.copyfile(rival.file(name), copy / name)
                replace(whole_model, recipe=rival.manifest.recipe).compile(copy, libraries[BASELINE])
            race = time_engines(whole_model, list(libraries), libraries)
            latency_us = race.latency_us
            checks.append(check_latency(latency_us, race.conditions.note, exported, tolerance))
    schedules = str(exported.directory)
    return Verification(model=model.name, schedules=schedules, checks=checks, latency_us=latency_us)


def check_applied(build: "Compiled", exported: ScheduleDirectory) -> list[Check]:
    """Return a check per workload and per record that cannot be used.

    The proof is the compiled module: TVM marks each function that it took from a record. A
    workload for which the job found no schedule, as the manifest says, is not judged.
    """
    rows: list[tuple[str, Outcome, str]] = [(name, "passed", "from a record") for name in build.applied]
    if unmarked := build.of - len(build.missing) - len(build.applied):
        rows.append(("compiled module", "failed", f"{unmarked} workloads have a record that was not applied"))
    for name in build.missing:
        is_known = name in exported.manifest.without_schedule
        text = "the job found no schedule" if is_known else "no record applies"
        rows.append((name, "not judged" if is_known else "failed", text))
    for problem in build.problems:
        name = f"{exported.version.file(problem.file)}, line {problem.line}"
        rows.append((name, "failed", problem.error))
    return [Check(kind="applied", name=name, outcome=outcome, text=text) for name, outcome, text in rows]


def check_latency(
    latency_us: Mapping[str, ModelLatency], disturbance: str, exported: ScheduleDirectory, tolerance: float
) -> Check:
    """Judge the tuned model's latency by the baseline's of the same sitting. Without one, judge it
    by the report's, but only on the same class of machine and undisturbed."""
    from mallorn.workers.device.detect_host import read_host_facts

    latency = latency_us[TUNED]
    if BASELINE in latency_us:
        return judge_latency(latency, latency_us[BASELINE], tolerance)
    report_latency = read_report_latency(exported)
    if report_latency is None:
        return _latency("not judged", f"{latency.median:.0f} us; there is no baseline and no {REPORT}")
    job_class, own_class = exported.manifest.measured_on.host_class, read_host_facts()["host_class"]
    reason = disturbance if job_class == own_class else f"it measured on {job_class}, this is {own_class}"
    if not reason:
        return judge_latency(latency, report_latency, tolerance)
    text = f"{latency.median:.0f} us; the job reported {report_latency.median:.0f} us, but {reason}"
    return _latency("not judged", text)


def judge_latency(latency: ModelLatency, baseline: ModelLatency, tolerance: float) -> Check:
    """Compare two latencies. The check fails if the tuned model's median is slower than the
    tolerance allows, and the two confidence intervals show that this is no chance."""
    ratio = latency.median / baseline.median
    text = f"{latency.median:.0f} us, {ratio:.2f} times the baseline's {baseline.median:.0f} us"
    if ratio <= 1 + tolerance:
        return _latency("passed", text)
    if latency.low <= baseline.high:
        return _latency("passed", f"{text}, which is within the uncertainty of the timing")
    return _latency("failed", f"{text}; {1 + tolerance:.2f} times are allowed")


def _latency(outcome: Outcome, text: str) -> Check:
    return Check(kind="latency", name="latency", outcome=outcome, text=text)


def read_report_latency(exported: ScheduleDirectory) -> ModelLatency | None:
    """Return the tuned model's latency in the report beside the schedules; None if unknown."""
    try:
        report = FinishReport.model_validate(read_json((exported.directory / REPORT).read_bytes()))
    except (OSError, ValueError):
        return None
    return report.latency_us.get(TUNED) if exported.version is Version.ALONE else None
