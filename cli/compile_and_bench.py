"""Commands that compile and time a model with its schedules on this machine, without a service."""

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version as package_version
from importlib.resources import files
from importlib.util import find_spec
from math import inf
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple, TypeVar

import typer
from pydantic_core import to_jsonable_python

from mallorn.cli.schedule_directory import (
    ScheduleDirectory,
    can_run_onnxruntime,
    local_model,
    read_schedule_directory,
)
from mallorn.cli.several_targets import Body, finish_each
from mallorn.cli.terminal.job_options import InputsOption
from mallorn.cli.terminal.output import JsonOption, Place, print_json, print_note, stdout, table
from mallorn.client.local_service import connected_stack
from mallorn.client.onnx_export import find_model_file
from mallorn.core.errors import ExitCode, InvalidRequest, MallornError
from mallorn.core.private_files import write_output
from mallorn.core.targets import Target, name_targets
from mallorn.core.values.graph_report import TensorSpec
from mallorn.core.values.manifest import LIBRARY, ScheduleSet
from mallorn.results.speedup import TUNED, compare_with_rival
from mallorn.wording.describe_results import engine_columns, latency_rows

if TYPE_CHECKING:
    from mallorn.client.job import Job
    from mallorn.core.values.finish_report import ModelLatency
    from mallorn.workers.interfaces.model_compiler import Compiled
    from mallorn.workers.whole_model.compiled_model import WholeModel
    from mallorn.workers.whole_model.interleaved_timing import FairRace

T = TypeVar("T")
MARK: Final = "Written by `mallorn compile`"
TEMPLATES: Final = files("mallorn.cli") / "templates"
PROGRAMS: Final = ("run.py", "run.cc")
RUNTIME: Final = ("apache-tvm", "apache-tvm-ffi", "numpy")
FREE_RANGE: Final = (0, 1)
SITE: Final = "import importlib.util as u; print(u.find_spec('tvm_ffi').origin.rsplit('/', 2)[0])"


@dataclass(frozen=True, slots=True)
class Callee:
    """Description of a compiled model, for the generated programs that call it."""

    library: Path
    target: Target
    inputs: Sequence[TensorSpec]
    outputs: Sequence[TensorSpec]
    input_ranges: Mapping[str, Sequence[int]]
    versions: Mapping[str, str]


def write_runners(callee: Callee) -> list[Path]:
    """Write programs that call the library, and return their paths; keep users' files."""
    programs = []
    for name, text in _runner_sources(callee).items():
        path = callee.library.with_name(name)
        if not path.exists() or MARK in path.read_text(errors="replace"):
            write_output(path, text)
            programs.append(path)
    return programs


def shell_commands(program: Path, library: Path, target: Target) -> list[str]:
    """Return the shell commands that run a program; C++ is built against TVM's wheels."""
    if program.suffix == ".py":
        return [f"python {shlex.quote(str(program))}"]
    path = program.with_suffix("")
    libraries = " ".join(filter(None, ("-ltvm_runtime", target.hardware.runtime_link_options, "-ltvm_ffi")))
    folders = "-I$P/tvm_ffi/include -L$P/tvm_ffi/lib -L$P/tvm/lib"
    linking = "-Wl,-rpath,$P/tvm_ffi/lib,-rpath,$P/tvm/lib -Wl,--no-as-needed"
    source, binary = shlex.quote(str(program)), shlex.quote(str(path))
    start = shlex.quote(str(path if path.is_absolute() or path.parent != Path() else f"./{path}"))
    return [
        f'P=$(python -c "{SITE}")',
        f"g++ -std=c++17 -O2 {source} -o {binary} {folders} {linking} {libraries}",
        f"{start} {shlex.quote(str(library))}",
    ]


def _runner_sources(callee: Callee) -> dict[str, str]:
    on_cores, cpp = callee.target.runs_on_cores, callee.target.hardware.dlpack_device
    python = "cpu" if on_cores else callee.target.kind
    names = [spec.name for spec in callee.outputs]
    common = {
        "library": callee.library.name,
        "library_text": json.dumps(callee.library.name),
        "packages": " ".join(f"{name}=={number}" for name, number in callee.versions.items()),
        "threads": str(callee.target.num_cores),
    }
    lines, specs = [], []
    for spec in callee.inputs:
        value_range = tuple(callee.input_ranges.get(spec.name, FREE_RANGE))
        lines.append(f"    {(spec.name, spec.dtype, tuple(spec.shape), value_range)!r},")
        shape = ", ".join(map(str, spec.shape))
        specs.append(f"    {{{json.dumps(spec.name)}, {json.dumps(spec.dtype)}, {{{shape}}}}}")
    for_py = {"device": python, "inputs": "\n".join(lines), "outputs": repr(names)}
    command = "\n".join(
        f"//   {line}" for line in shell_commands(Path("run.cc"), Path(callee.library.name), callee.target)
    )
    for_cpp = {
        "device": cpp,
        "inputs": ",\n".join(specs),
        "outputs": ", ".join(map(json.dumps, names)),
        "command": command,
    }
    templates = [Template((TEMPLATES / f"{name}.tmpl").read_text()) for name in PROGRAMS]
    texts = [text.substitute(common | own) for text, own in zip(templates, (for_py, for_cpp), strict=True)]
    return dict(zip(PROGRAMS, texts, strict=True))


PROBLEMS_SHOWN: Final = 5
ONLY_TOGETHER: Final = "no node of the import differs from onnxruntime by itself; the whole model does"

ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="The ONNX file that was tuned.")]
SchedulesOption = Annotated[
    Path, typer.Option("--schedules", metavar="DIR", help="The directory that `mallorn tune` wrote.")
]
TargetOption = Annotated[
    str | None,
    typer.Option("--target", help="Fail if the schedules are for another target; default: theirs."),
]
ScheduleSetOption = Annotated[
    ScheduleSet,
    typer.Option(
        "--set", help="What is fastest alone, or beside other programs (of a job with --contention)."
    ),
]


class WrongNumbers(MallornError):
    """The compiled model does not compute what onnxruntime or the untuned model does."""

    exit_code = ExitCode.CHECK_FAILED


class OutputCheck(NamedTuple):
    """A library whose outputs are correct."""

    error: float  # relative
    reference: str  # the engine that it was compared with
    constant: list[int]  # outputs that did not vary, and so were not checked
    note: str  # how the references differ; empty if they agree

    def describe(self, outputs: Sequence[TensorSpec]) -> list[str]:
        """Return the result in sentences, given the model's outputs."""
        from mallorn.workers.whole_model.engines import CONSTANT_OUTPUT, WITH_INPUTS

        lines = [f"relative error against {self.reference}: {self.error:.1e}"]
        lines += [
            f"the output {outputs[index].name!r} was not checked: {CONSTANT_OUTPUT}; {WITH_INPUTS}"
            for index in self.constant
        ]
        return [*lines, self.note] if self.note else lines


def compile_model(
    model: ModelArgument,
    schedules: SchedulesOption,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE.so", help="The library; with several --for, a DIR."),
    ],
    target: TargetOption = None,
    schedule_set: ScheduleSetOption = ScheduleSet.ALONE,
    machines: Annotated[
        list[str] | None,
        typer.Option(
            "--for",
            metavar="TARGET",
            help="Compile for another CPU: `aarch64`, `x86-64` or a JSON target. Schedules with "
            "instructions that it may lack are left out. Repeatable: a library for each.",
        ),
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Compare its outputs with onnxruntime's, or else the untuned model's."),
    ] = False,
    inputs: InputsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compile a model with its schedules."""
    model, exported = find_model_file(model), read_schedule_directory(schedules, target, schedule_set)
    exports = [exported.for_target(machine) for machine in machines or ()] or [exported]
    if check and any(one.is_for_another for one in exports):
        raise InvalidRequest("--check runs the model, which is for another machine", hint="without --check")
    if not output.absolute().parent.is_dir():
        raise InvalidRequest(f"there is no directory {output.parent}", hint=f"mkdir -p {output.parent}")
    compile_one = partial(_compile_one, model, check=check, inputs=inputs, as_json=as_json)
    if len(exports) == 1:
        body = compile_one(exports[0], output)
        return print_json(body) if as_json else None
    names = name_targets([one.target for one in exports], machines or ())
    if output.suffix == ".so" or output.is_file():
        raise InvalidRequest(f"{output} is no directory for libraries", hint="-o DIR")
    named = dict(zip(names, exports, strict=True))
    finish_each(named, lambda name, one: compile_one(one, output / name / LIBRARY), as_json)


def _compile_one(
    model: Path, exported: ScheduleDirectory, output: Path, check: bool, inputs: Path | None, as_json: bool
) -> Body:
    """Compile for one target, and write programs that call the library; print the result unless `as_json`."""
    with local_model(model, exported, inputs=inputs) as whole_model:
        library = whole_model.folder / "tuned.so"
        build = compile_tuned(whole_model, exported, library)
        check_result = check_library_outputs(whole_model, library) if check else None
        output.parent.mkdir(parents=True, exist_ok=True)
        copy_from_sandbox(library, output)
    callee = Callee(
        library=output,
        target=exported.target,
        inputs=build.inputs,
        outputs=build.outputs,
        input_ranges=exported.manifest.input_ranges,
        versions={name: package_version(name) for name in RUNTIME},
    )
    programs = write_runners(callee)
    checked: dict[str, object] = {}
    if check_result is not None:
        constant = [build.outputs[index].name for index in check_result.constant]
        checked = {"error": check_result.error, "not_checked": constant}
    paths = {"library": str(output), "programs": [str(program) for program in programs]}
    body = {**to_jsonable_python(build), **checked, **paths}
    if as_json:
        return body
    stdout().print(f"{output}: {build.bytes / 1e6:.1f} MB in {build.seconds:.0f} s")
    stdout().print(f"{build.found} of {build.of} workloads have a schedule")
    for line in () if check_result is None else check_result.describe(build.outputs):
        stdout().print(line)
    for name in PROGRAMS:
        program = output.with_name(name)
        if program in programs:
            print_note(f"{program} calls it:")
            for line in shell_commands(program, output, exported.target):
                print_note(f"  {line}")
        elif program.exists():
            print_note(
                f"{program} was not written by mallorn and is left as it is; to get the program, compile "
                f"into another directory: -o DIR/{output.name}"
            )
    return body


def bench(
    model: Annotated[
        str, typer.Argument(metavar="MODEL|JOB", help="The ONNX file that was tuned, or a job's id.")
    ],
    schedules: Annotated[
        Path | None,
        typer.Option(
            "--schedules", metavar="DIR", help="The directory that `mallorn tune` wrote, for MODEL."
        ),
    ] = None,
    target: TargetOption = None,
    schedule_set: ScheduleSetOption = ScheduleSet.ALONE,
    untuned: Annotated[
        bool, typer.Option("--untuned", help="Time TVM's default build too; it is slow.")
    ] = False,
    inputs: InputsOption = None,
    as_json: JsonOption = False,
    *,
    place: Place,
) -> None:
    """Time a model with its schedules here, or a job's on the device that measured, beside onnxruntime.

    Your services on this machine pause meanwhile. Other programs that disturb the timing are reported.
    """
    if schedules is None:
        if Path(model).exists():
            raise InvalidRequest(
                f"{model} is a model, and its schedules are not named",
                hint=f"mallorn bench {model} --schedules DIR",
            )
        with connected_stack(*place) as stack:
            bench_job(stack.api.job(model), as_json)
        return
    from mallorn.workers.whole_model.compiled_model import ONNXRUNTIME
    from mallorn.workers.whole_model.engines import UNTUNED

    file, exported = find_model_file(model), read_schedule_directory(schedules, target, schedule_set)
    has_rival = can_run_onnxruntime(exported)
    names = [TUNED, *([UNTUNED] if untuned else []), *([ONNXRUNTIME] if has_rival else [])]
    with local_model(file, exported, inputs=inputs) as whole_model:
        libraries = {TUNED: whole_model.folder / "tuned.so"}
        build = compile_tuned(whole_model, exported, libraries[TUNED])
        if untuned:
            libraries[UNTUNED] = whole_model.folder / "untuned.so"
            whole_model.compile_untuned(libraries[UNTUNED])
        race_result = time_engines(whole_model, names, libraries)
    if as_json:
        timings = {"latency_us": race_result.latency_us, "conditions": race_result.conditions}
        print_json(to_jsonable_python(build) | to_jsonable_python(timings))
        return
    print_latencies(race_result.latency_us, race_result.conditions.note)
    if not has_rival and exported.target.runs_on_cores:
        print_note("onnxruntime is not installed; to compare with it   pip install onnxruntime")


def bench_job(job: "Job", as_json: bool) -> None:
    """Time a done job's schedules again where it measured, and print the latencies."""
    print_note(f"timing the schedules of job {job.id} again on a device like the one that measured them")
    report = job.bench()
    latency_us = report.latency_us
    if as_json:
        print_json(report)
    else:
        print_latencies(latency_us, report.disturbance_text)
    report_latency, latency = job.status.finish_report.latency_us.get(TUNED), latency_us.get(TUNED)
    if report_latency is not None and latency is not None:
        ratio = latency.median / report_latency.median
        print_note(f"the job reported {report_latency.median:.0f} us; now it is {ratio:.2f} times that")
    for step in report.skipped_steps:
        print_note(f"not done: {step.step}: {step.reason}")
    if latency is None:
        raise typer.Exit(ExitCode.FAILED)


def print_latencies(latency_us: Mapping[str, "ModelLatency | None"], disturbance: str) -> None:
    stdout().print(table(latency_rows(latency_us), engine_columns(latency_us)))
    if (race := compare_with_rival(latency_us)) is not None:
        print_note(f"the tuned model is {race.full_text}")
    if disturbance:
        print_note(f"beware: {disturbance}")


def time_engines(model: "WholeModel", names: Sequence[str], libraries: Mapping[str, Path]) -> "FairRace":
    """Time engines in turn, TVM's with these libraries, while other work of the services here pauses.
    Raises what `check_library_outputs` raises if the tuned model's outputs are not onnxruntime's."""
    from mallorn.workers.host.host_lock import HostLock
    from mallorn.workers.whole_model.compiled_model import ONNXRUNTIME
    from mallorn.workers.whole_model.engines import Engines

    with Engines(model, names) as engines:
        engines.load(libraries)
        if not engines.errors(TUNED).get(ONNXRUNTIME, 0.0) <= engines.accepted_error:
            print_note(check_library_outputs(model, libraries[TUNED]).note)
        with HostLock().hold_exclusive() as is_alone:
            return engines.time_undisturbed(is_alone)


def compile_tuned(model: "WholeModel", exported: ScheduleDirectory, library: Path) -> "Compiled":
    """Compile a model; warn if tasks lack a schedule. Raises InvalidRequest if all do."""
    print_note(f"compiling for {exported.target}")
    build = model.compile(exported.create_database_folder(model.folder), library, exported.manifest)
    for problem in build.problems[:PROBLEMS_SHOWN]:
        line = f"{exported.file(problem.file)}, line {problem.line}"
        print_note(f"warning: {line} cannot be used and is left out: {problem.error}")
    if hidden_count := len(build.problems[PROBLEMS_SHOWN:]):
        print_note(f"warning: {hidden_count} more lines are left out; --json lists them")
    if build.of and not build.found:
        cause = "no line of its logs can be used" if build.problems else "it was tuned for another model"
        raise InvalidRequest(
            f"none of the model's {build.of} workloads has a schedule in {exported.directory}: {cause}",
            hint="mallorn tune MODEL --out DIR",
        )
    if build.missing:
        print_note(f"warning: without a schedule, and slow: {', '.join(build.missing)}")
    return build


def check_library_outputs(model: "WholeModel", library: Path) -> OutputCheck:
    """Compare a library's outputs with onnxruntime's or, if it cannot run the model, with the
    untuned model's. Raises WrongNumbers, naming the node if the import is wrong; on CPUs
    also what `WholeModel.check_alone` raises."""
    from mallorn.workers.interfaces.whole_model_engine import WrongImport
    from mallorn.workers.subprocesses.errors import ChildError
    from mallorn.workers.whole_model.compiled_model import ONNXRUNTIME
    from mallorn.workers.whole_model.engines import UNTUNED, Engines, title

    def attempt(step: str, work: Callable[[], T]) -> T | None:
        try:
            return work()
        except ChildError as error:
            if ONNXRUNTIME not in step:
                raise
            print_note(f"not done: {step}: {error.headline}")
            return None

    has_rival = model.target.runs_on_cores and find_spec(ONNXRUNTIME) is not None
    with Engines(model, (TUNED, UNTUNED, *[ONNXRUNTIME] * has_rival), attempt) as engines:
        engines.load({TUNED: library}, (TUNED, ONNXRUNTIME))
        errors, reference, note, is_rounding = engines.errors(TUNED), ONNXRUNTIME, "", False
        if not errors.get(ONNXRUNTIME, inf) <= engines.accepted_error:
            print_note("compiling the untuned model to compare with")
            model.compile_untuned(untuned := model.folder / "untuned.so")
            engines.load({UNTUNED: untuned}, (UNTUNED,))
            errors, reference, own_error = engines.errors(TUNED), UNTUNED, engines.own_error
            if not engines.errors(UNTUNED).get(ONNXRUNTIME, 0.0) <= engines.accepted_error:
                print_note("searching for the node where the import begins to differ from onnxruntime")
                try:
                    difference = model.judge_import(
                        errors.get(ONNXRUNTIME, inf), own_error, copy_from_sandbox
                    )
                except WrongImport as wrong:
                    raise WrongNumbers(wrong.message, hint=wrong.hint) from None
                note = difference.description if difference else ONLY_TOGETHER
                is_rounding = difference is not None and difference.own_change is not None
        error, limit = errors[reference], engines.accepted_error
        constant = engines.find_constant_outputs()
    if not error <= limit and not is_rounding:
        raise WrongNumbers(
            f"the relative error against {title(reference)} is {error:.1e}, more than {limit:.0e}",
            hint="mallorn tune MODEL --out OTHER_DIR",
        )
    if model.target.runs_on_cores:
        model.check_alone(library, model.outputs_file(TUNED))
    return OutputCheck(error, title(reference), constant, note)


def copy_from_sandbox(file: Path, output: Path | None = None) -> Path:
    """Copy a file out of a sandbox, by default to the current directory, and return the
    copy. Raises TamperedFile if it is no regular file."""
    from mallorn.workers.sandbox.sandbox import FILE_BYTES
    from mallorn.workers.sandbox.untrusted_files import copy_out

    output = output or Path(file.name)
    try:
        copy_out(file.parent, file.name, output, FILE_BYTES)
    except OSError as error:
        raise InvalidRequest(f"cannot write {output}: {error.strerror}", hint="choose another -o") from None
    return output
