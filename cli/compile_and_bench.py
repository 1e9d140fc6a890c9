"""Commands that compile and time a model with its schedules on this machine, without a service."""

from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from pydantic_core import to_jsonable_python

from cli.schedule_directory import ScheduleDirectory, local_model, onnxruntime_runs, read_exported
from cli.terminal.output import JsonOption, print_json, print_note, stdout, table
from cli.write_inference_programs import PROGRAMS, RUNTIME, Callee, run_lines, write_runners
from mallorn.core.errors import InvalidRequest, MallornError
from mallorn.core.targets import Target
from mallorn.core.values.manifest import Version
from mallorn.onnx_export import existing
from mallorn.wording.results import ENGINE_COLUMNS, latency_rows

if TYPE_CHECKING:
    from workers.interfaces.model_compiler import BadLine, Compiled
    from workers.whole_model.compiled_model import WholeModel

PROBLEMS_SHOWN: Final = 5

ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="The ONNX file that was tuned.")]
SchedulesOption = Annotated[
    Path, typer.Option("--schedules", metavar="DIR", help="The directory that `mallorn tune` wrote.")
]
TargetOption = Annotated[
    str | None, typer.Option("--target", help="Refuse schedules of any other target; default: theirs.")
]
VersionOption = Annotated[
    Version,
    typer.Option(
        "--version", help="What is fastest alone, or beside other programs (of a job with --contention)."
    ),
]


class WrongNumbers(MallornError):
    """The compiled model does not compute what the untuned one does."""


def compile_model(
    model: ModelArgument,
    schedules: SchedulesOption,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE.so", help="The library to write.")],
    target: TargetOption = None,
    version: VersionOption = Version.ALONE,
    check: Annotated[
        bool, typer.Option("--check", help="Compare its numbers with the untuned model's.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Compile a model with its schedules."""
    model, exported = existing(model), read_exported(schedules, target, version)
    if not output.absolute().parent.is_dir():
        raise InvalidRequest(f"there is no directory {output.parent}", hint=f"mkdir -p {output.parent}")
    with local_model(model, exported) as whole:
        library = whole.folder / "tuned.so"
        compiled = compile_tuned(whole, exported, library)
        error = check_numbers(whole, library) if check else None
        copy_library(library, output)
    programs = write_runners(_callee(output, exported, compiled))
    if as_json:
        checked = {} if error is None else {"error": error}
        written = {"library": str(output), "programs": [str(program) for program in programs]}
        print_json(to_jsonable_python(compiled) | checked | written)
        return
    stdout().print(f"{output}: {compiled.bytes / 1e6:.1f} MB in {compiled.seconds:.0f} s")
    stdout().print(f"{compiled.found} of {compiled.of} workloads have a schedule")
    if error is not None:
        stdout().print(f"relative error against the untuned model: {error:.1e}")
    _tell_programs(output, exported.target, programs)


def _callee(library: Path, exported: ScheduleDirectory, compiled: "Compiled") -> Callee:
    return Callee(
        library=library,
        target=exported.target,
        inputs=compiled.inputs,
        outputs=compiled.outputs,
        input_ranges=exported.manifest.input_ranges,
        versions={name: version(name) for name in RUNTIME},
    )


def _tell_programs(library: Path, target: Target, programs: Sequence[Path]) -> None:
    """What to type to call the library; its program's line works in the library's directory."""
    for name in PROGRAMS:
        program = library.with_name(name)
        if program in programs:
            print_note(f"{program} calls it:")
            for line in run_lines(program, library, target):
                print_note(f"  {line}")
        elif program.exists():
            print_note(
                f"{program} is not ours and was left as it is; elsewhere it is written: -o DIR/{library.name}"
            )


def bench(
    model: ModelArgument,
    schedules: SchedulesOption,
    target: TargetOption = None,
    version: VersionOption = Version.ALONE,
    untuned: Annotated[
        bool, typer.Option("--untuned", help="Time TVM's default build too; it is slow.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Time a model with its schedules. Beside it onnxruntime, where that is installed.

    Services of yours on this machine make way meanwhile; what else it does is told.
    """
    from workers.host.host_lock import HostLock
    from workers.whole_model.compiled_model import ONNXRUNTIME
    from workers.whole_model.engines import TUNED, UNTUNED, Engines

    model, exported = existing(model), read_exported(schedules, target, version)
    beside = onnxruntime_runs(exported)
    names = [TUNED, *([UNTUNED] if untuned else []), *([ONNXRUNTIME] if beside else [])]
    with local_model(model, exported) as whole:
        libraries = {TUNED: whole.folder / "tuned.so"}
        compiled = compile_tuned(whole, exported, libraries[TUNED])
        if untuned:
            libraries[UNTUNED] = whole.folder / "untuned.so"
            whole.compile_untuned(libraries[UNTUNED])
        with Engines(whole, names) as engines:
            engines.load(libraries)
            with HostLock().alone() as held:
                fair = engines.race(held)
    if as_json:
        told = {"latency_us": fair.latency_us, "conditions": fair.conditions}
        print_json(to_jsonable_python(compiled) | to_jsonable_python(told))
        return
    stdout().print(table(latency_rows(fair.latency_us), ENGINE_COLUMNS))
    if fair.conditions.note:
        print_note(f"beware: {fair.conditions.note}")
    if not beside and exported.target.is_cpu:
        print_note("onnxruntime is not installed; to compare with it   pip install onnxruntime")


def compile_tuned(model: "WholeModel", exported: ScheduleDirectory, library: Path) -> "Compiled":
    """Compile and say what the schedules do not cover. Raises InvalidRequest when they cover nothing."""
    print_note(f"compiling for {exported.target}")
    compiled = model.compile(exported.records(model.folder), library)
    _tell_problems(exported, compiled.problems)
    if compiled.of and not compiled.found:
        why = "no line of its logs can be used" if compiled.problems else "it was tuned for another model"
        raise InvalidRequest(
            f"none of the model's {compiled.of} workloads has a schedule in {exported.directory}: {why}",
            hint="mallorn tune MODEL --out DIR",
        )
    if compiled.missing:
        print_note(f"warning: without a schedule, and slow: {', '.join(compiled.missing)}")
    return compiled


def _tell_problems(exported: ScheduleDirectory, problems: Sequence["BadLine"]) -> None:
    for problem in problems[:PROBLEMS_SHOWN]:
        where = f"{exported.file(problem.file)}, line {problem.line}"
        print_note(f"warning: {where} cannot be used and is left out: {problem.error}")
    if len(problems) > PROBLEMS_SHOWN:
        print_note(f"warning: {len(problems) - PROBLEMS_SHOWN} more lines are left out; --json lists them")


def check_numbers(model: "WholeModel", library: Path) -> float:
    """The relative error of a library against the untuned model. Raises WrongNumbers when it is too large."""
    from graphc.export.export_checks import is_quantised
    from workers.whole_model.compiled_model import ONNXRUNTIME
    from workers.whole_model.engines import TUNED, UNTUNED, Engines

    reference = model.folder / "untuned.so"
    beside = [ONNXRUNTIME] if is_quantised(model.path) and find_spec(ONNXRUNTIME) else []
    print_note("compiling the untuned model to compare with")
    model.compile_untuned(reference)
    with Engines(model, (TUNED, UNTUNED, *beside)) as engines:
        engines.load({TUNED: library, UNTUNED: reference})
        error, allowed = engines.errors(TUNED)[UNTUNED], engines.largest_error
    if not error <= allowed:
        raise WrongNumbers(
            f"the relative error against the untuned model is {error:.1e}, more than {allowed:.0e}; "
            "nothing was written",
            hint="mallorn tune MODEL --out OTHER_DIR",
        )
    return error


def copy_library(library: Path, output: Path) -> None:
    """Copy what a process behind walls compiled. Raises TamperedFile where it left no plain file."""
    from workers.sandbox.sandbox import FILE_BYTES
    from workers.sandbox.untrusted_files import copy_out

    try:
        copy_out(library.parent, library.name, output, FILE_BYTES)
    except OSError as error:
        raise InvalidRequest(f"cannot write {output}: {error.strerror}", hint="choose another -o") from None
