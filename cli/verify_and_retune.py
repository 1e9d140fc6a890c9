"""`mallorn verify`, a gate for CI on schedules, and `mallorn retune`, which tunes what it misses."""

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import replace
from glob import escape
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal
from xml.etree import ElementTree

import typer

from mallorn.cli import compile_and_bench
from mallorn.cli.dataset_import import ImportTally, import_logs
from mallorn.cli.dataset_options import dataset
from mallorn.cli.schedule_directory import ScheduleDirectory, local_model, read_schedule_directory
from mallorn.cli.terminal.job_options import EffortOptions, InputsOption, TargetOption
from mallorn.cli.terminal.output import JsonOption, Place, print_json, print_note, stdout
from mallorn.cli.tune_and_resume import tune
from mallorn.client.http_connection import sha256_of
from mallorn.client.onnx_export import as_onnx, find_model_file
from mallorn.client.out_directory import model_id_of
from mallorn.core.check_option_kwargs import OptionKwargs
from mallorn.core.errors import ExitCode
from mallorn.core.job_options import MOST_PATTERNS
from mallorn.core.private_files import make_private_directory, write_output
from mallorn.core.storable_json import read_json
from mallorn.core.targets import LOCAL
from mallorn.core.values.base import Value
from mallorn.core.values.finish_report import ModelLatency
from mallorn.core.values.manifest import DATABASE, MANIFEST, Manifest, ScheduleSet
from mallorn.results.speedup import TUNED

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


class Verification(Value):
    """All checks of one run. It is kept as the proof for the same content."""

    model: str
    checks: list[Check]
    latency_us: Mapping[str, ModelLatency] = {}  # by engine: `tuned`, `baseline`

    @property
    def exit_code(self) -> int:
        """Code of the first failed check; 0 if none failed."""
        return next((EXIT_CODES[check.kind] for check in self.checks if check.outcome == "failed"), 0)


def to_junit(verification: Verification) -> str:
    """Return the checks as a JUnit test suite; a check that was not judged is skipped."""
    elements = {"failed": "failure", "not judged": "skipped"}
    outcomes = [check.outcome for check in verification.checks]
    suite = ElementTree.Element(
        "testsuite",
        name=f"mallorn verify {_one_line(verification.model)}",
        tests=str(len(outcomes)),
        failures=str(outcomes.count("failed")),
        skipped=str(outcomes.count("not judged")),
    )
    for check in verification.checks:
        attributes = {"classname": check.kind, "name": _one_line(check.name)}
        case = ElementTree.SubElement(suite, "testcase", attributes)
        if check.outcome in elements:
            message = _one_line(check.text)
            ElementTree.SubElement(case, elements[check.outcome], message=message)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def to_markdown(verification: Verification) -> str:
    """Return a heading, and a table of all checks except workloads that passed."""
    passes = [check.outcome == "passed" for check in verification.checks if check.kind == "applied"]
    lines = [
        f"### mallorn verify {_as_markdown(verification.model)}",
        "",
        f"{sum(passes)} of {len(passes)} workloads of the compiled model come from a record.",
        "",
        "| check | outcome | result |",
        "|---|---|---|",
    ]
    for check in verification.checks:
        if (check.kind, check.outcome) != ("applied", "passed"):
            lines.append(f"| {_as_markdown(check.name)} | {check.outcome} | {_as_markdown(check.text)} |")
    return "\n".join(lines) + "\n"


def _one_line(text: str) -> str:
    """Return untrusted text as one line without characters that XML forbids."""
    return "".join(char if char.isprintable() else " " for char in text)


def _as_markdown(text: str) -> str:
    """Return untrusted text as one line of Markdown without tables, links and HTML."""
    return re.sub(r"[\\`*\[\]<>|]|://", r"\\\g<0>", _one_line(text))


def verify(
    model: compile_and_bench.ModelArgument,
    schedules: compile_and_bench.SchedulesOption,
    target: compile_and_bench.TargetOption = None,
    schedule_set: compile_and_bench.ScheduleSetOption = ScheduleSet.ALONE,
    baseline: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Schedules that are timed in turn with these.")
    ] = None,
    tolerance: Annotated[
        float, typer.Option(min=0, help="Accepted slowdown against the baseline; 0.1 is 10 %.")
    ] = 0.1,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the checks as JUnit XML.")] = None,
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a summary as Markdown.")
    ] = None,
    inputs: InputsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Prove that schedules are applied, that numbers are right and that nothing is slower."""
    model, exported = find_model_file(model), read_schedule_directory(schedules, target, schedule_set)
    wanted = exported.target.text, schedule_set
    rival = None if baseline is None else read_schedule_directory(baseline, *wanted)
    proof = proof_file(model, exported, rival, tolerance, inputs)
    verification = read_proof(proof)
    if verification is not None:
        print_note(f"nothing changed since this proof was written; to check again   rm {proof}")
    else:
        verification = verify_model(model, exported, rival, tolerance, inputs)
        if verification.exit_code == 0:
            make_private_directory(proof.parent)
            write_output(proof, verification.model_dump_json() + "\n")
    for path, write in ((junit, to_junit), (markdown, to_markdown)):
        if path is not None:
            write_output(path, write(verification))
    if as_json:
        print_json(verification)
    else:
        stdout().print(to_markdown(verification), end="")
    raise typer.Exit(verification.exit_code)


def proof_file(
    model: Path,
    exported: ScheduleDirectory,
    baseline: ScheduleDirectory | None,
    tolerance: float,
    inputs: Path | None = None,
) -> Path:
    """Return the file that keeps a passed run, named by a digest of all that it depends on: the
    bytes of model, manifests and records, the code that compiles, the machine's class and the
    tolerance. It lies in the user's cache, so that no change of the schedules changes a proof."""
    from mallorn.workers.device.detect_host import read_host_facts
    from mallorn.workers.host.code_digest import current_builder_name

    with as_onnx(model) as file:
        builder = current_builder_name(exported.target.toolchain)
        parts = [model_id_of(file, inputs), exported.target.text, builder, str(tolerance)]
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


def verify_model(
    model: Path,
    exported: ScheduleDirectory,
    rival: ScheduleDirectory | None,
    tolerance: float,
    inputs: Path | None = None,
) -> Verification:
    """Compile the model and check it; time it in turn with the baseline's schedules."""
    latency_us: Mapping[str, ModelLatency] = {}
    with local_model(model, exported, inputs=inputs) as whole_model:
        libraries = {TUNED: whole_model.folder / "tuned.so"}
        print_note(f"compiling for {exported.target}")
        build = whole_model.compile(exported.create_database_folder(whole_model.folder), libraries[TUNED])
        checks = check_applied(build, exported, rival)
        try:
            result = compile_and_bench.check_library_outputs(whole_model, libraries[TUNED])
            text, *others = result.describe(build.outputs)
            checks.append(Check(kind="numbers", name="numbers", outcome="passed", text=text))
            checks += [
                Check(kind="numbers", name="not checked", outcome="not judged", text=each) for each in others
            ]
        except compile_and_bench.WrongNumbers as wrong:
            checks.append(Check(kind="numbers", name="numbers", outcome="failed", text=wrong.message))
        if any(check.outcome == "failed" for check in checks):
            print_note("the model is not timed, because a check failed")
        elif rival is not None and _digests(rival) == _digests(exported):
            text = "the baseline has the same schedules, so nothing was timed"
            checks.append(Check(kind="latency", name="latency", outcome="passed", text=text))
        else:
            if rival is not None:
                libraries[BASELINE] = whole_model.folder / "baseline.so"
                # The child process can read copies in the model's folder, but no other directory.
                (copy := whole_model.folder / BASELINE).mkdir()
                for name in DATABASE:
                    shutil.copyfile(rival.file(name), copy / name)
                replace(whole_model, recipe=rival.manifest.recipe).compile(copy, libraries[BASELINE])
            race = compile_and_bench.time_engines(whole_model, list(libraries), libraries)
            latency_us = race.latency_us
            checks.append(judge_latency(latency_us[TUNED], latency_us.get(BASELINE), tolerance))
    return Verification(model=model.name, checks=checks, latency_us=latency_us)


def check_applied(
    build: "Compiled", exported: ScheduleDirectory, rival: ScheduleDirectory | None = None
) -> list[Check]:
    """Return a check per workload and per record that cannot be used.

    The proof is the compiled module: TVM marks each function that it took from a record. A
    workload for which the job found no schedule is not judged. Which ones, the baseline's
    manifest says if there is a baseline, as the author of a change must not decide it.
    """
    unscheduled = (rival or exported).manifest.without_schedule
    rows: list[tuple[str, Outcome, str]] = [(name, "passed", "from a record") for name in build.applied]
    if unmarked := build.of - len(build.missing) - len(build.applied):
        rows.append(("compiled module", "failed", f"{unmarked} workloads have a record that was not applied"))
    for name in build.missing:
        is_known = name in unscheduled
        text = "the job found no schedule" if is_known else "no record applies"
        rows.append((name, "not judged" if is_known else "failed", text))
    for problem in build.problems:
        name = f"{exported.schedule_set.file(problem.file)}, line {problem.line}"
        rows.append((name, "failed", problem.error))
    return [Check(kind="applied", name=name, outcome=outcome, text=text) for name, outcome, text in rows]


def judge_latency(latency: ModelLatency, baseline: ModelLatency | None, tolerance: float) -> Check:
    """Compare the latencies of one sitting. The check fails if the median is slower than
    the tolerance allows, and the two confidence intervals show that this is no chance."""
    outcome: Outcome = "passed"
    text = f"{latency.median:.0f} us"
    if baseline is None:
        outcome = "not judged"
        text += "; --baseline DIR times it in turn with other schedules"
    else:
        ratio = latency.median / baseline.median
        text += f", {ratio:.2f} times the baseline's {baseline.median:.0f} us"
        if ratio > 1 + tolerance:
            is_chance = latency.low <= baseline.high
            outcome = "passed" if is_chance else "failed"
            text += ", within the uncertainty" if is_chance else f"; {1 + tolerance:.2f} times are allowed"
    return Check(kind="latency", name="latency", outcome=outcome, text=text)


def retune(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The schedules, which are updated.")],
    model: compile_and_bench.ModelArgument,
    target: TargetOption = LOCAL,
    *,
    effort: EffortOptions,
    as_json: JsonOption = False,
    place: Place,
) -> None:
    """Tune only workloads that are new or whose schedule no longer applies; update DIR."""
    model, exported = find_model_file(model), read_schedule_directory(directory, None)
    with local_model(model, exported) as whole_model:
        records = exported.create_database_folder(whole_model.folder)
        tasks = whole_model.compile(records, whole_model.folder / "tuned.so").missing
    if not tasks:
        print_note(f"every schedule applies: there is nothing to tune in {directory}")
        if as_json:
            print_json({"missing": []})
        return
    print_note(f"{len(tasks)} workloads to tune: {', '.join(tasks)}")
    if not place.url:  # the service here reuses these records; another has its own
        tally = ImportTally()
        with dataset(place.data, None, create=True) as database:
            import_logs(database, directory, tally)
        tally.print_problems()
    tune(
        model,
        [exported.target.text if target == LOCAL else target],
        effort=effort,
        auto=effort.trials is None and effort.minutes is None,
        out=directory,
        force=True,  # the directory may be of an earlier version of the model
        options=options_of(exported.manifest, tasks),
        as_json=as_json,
        place=place,
    )


def options_of(manifest: Manifest, tasks: list[str]) -> OptionKwargs:
    """Return job options that tune only these workloads, for the shapes of the manifest."""
    options = OptionKwargs()
    if len(tasks) <= MOST_PATTERNS:
        options["only"] = [escape(name) for name in tasks]
    if manifest.dynamic is not None:
        options["dynamic"] = {name: list(bounds) for name, bounds in manifest.dynamic.ranges.items()}
    elif manifest.input_shapes:
        options["input_shapes"] = manifest.input_shapes
    return options
