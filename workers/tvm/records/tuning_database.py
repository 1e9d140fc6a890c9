"""Write directories of schedules, read ones that may be damaged or untrusted, and convert
their tuning records, of Mallorn or stock MetaSchedule, to workloads and candidates.
"""

import base64
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import tvm
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.database import JSONDatabase, TuningRecord
from tvm.s_tir.schedule import Schedule, Trace
from tvm.target.codegen import llvm_get_system_triple

from mallorn.core.errors import InvalidRequest, MallornError, NotFound, Unschedulable
from mallorn.core.targets import KNOWN_KEYS, parse_target
from mallorn.core.values.manifest import MANIFEST, NOT_TIMED, RECORDS, UNTIMED_SEC, WORKLOADS, read_manifest
from mallorn.searchers.space import Sketch
from mallorn.workers.interfaces.model_compiler import (
    BadLine,
    ModelTask,
    Restored,
    RestoredLog,
    Skipped,
    Tuned,
)
from mallorn.workers.tvm.network.extract_tasks import describe_task
from mallorn.workers.tvm.network.run_recipe_passes import as_tvm_target
from mallorn.workers.tvm.programs.allowed_programs import TraceRefused, check_trace
from mallorn.workers.tvm.programs.buffer_bounds import check_schedule
from mallorn.workers.tvm.programs.parsed_program_cache import instructions, is_choice, parse_module
from mallorn.workers.tvm.programs.tensor_intrinsics import load_intrinsics_of
from mallorn.workers.tvm.programs.workload_key import canonical_names, rename_blocks_canonically
from mallorn.workers.tvm.space.rebuild_schedule import full_trace, map_choices_to_decisions
from mallorn.workers.tvm.space.sketches import choices_of, sketch_key, trace_text

FILES: Final = (WORKLOADS, RECORDS)
_LONGEST: Final = 300  # characters of the error of a line
# Directories that this process wrote, with their targets and the states of their files.
_written: dict[str, tuple[str, list[tuple[int, int, int]]]] = {}
# Errors of TVM for a trace that is invalid or does not fit its program, and of refused traces.
BROKEN = (
    *(ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError),
    *(TraceRefused, Unschedulable),
)
T = TypeVar("T")
_FAILED_SEC: Final = 1e9  # MetaSchedule and Mallorn write 1e10 if a schedule was never timed


class Readable(NamedTuple):
    """The number of good records in a directory of schedules, and its bad lines."""

    records: int
    problems: list[BadLine]


def write_database(directory: str, target: str, records: Sequence[Tuned]) -> list[Skipped]:
    """Write records to a directory that stock `JSONDatabase(work_dir=...)` reads.

    Records that cannot be rebuilt are skipped and returned, because one bad line makes TVM
    refuse the whole file. Each file appears complete or not at all.
    """
    Path(directory).mkdir(parents=True, exist_ok=True)
    bad_records = []
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        database = JSONDatabase(work_dir=scratch)
        for index, record in enumerate(records):
            try:
                mod = parse_module(record.tir)
                commit(database, mod, record.trace, record.run_secs, as_tvm_target(target))
            except BROKEN as error:
                bad_records.append(Skipped(index, describe_error(error)))
        for name in FILES:
            os.replace(Path(scratch, name), Path(directory, name))
    _written[directory] = target, _file_states(directory)
    return bad_records


def describe_error(error: Exception) -> str:
    """Return the shortened message, without its hint, of one of the errors in BROKEN."""
    words = error.message if isinstance(error, MallornError) else str(error) or repr(error)
    return words[:_LONGEST]


def commit(database: Any, mod: Any, trace: str | list[Any], run_secs: list[float], target: Any) -> None:
    """Add a record. Raises an error of BROKEN if its full trace does not fit `mod`."""
    if not run_secs or not all(0 < seconds < 1e9 for seconds in run_secs):
        raise ValueError("a record needs run times above zero")
    schedule = apply_trace(mod, trace)
    arguments = ArgInfo.from_entry_func(schedule.mod, remove_preproc=True)
    workload = database.commit_workload(mod)
    database.commit_tuning_record(TuningRecord(schedule.trace, workload, run_secs, target, arguments))


def apply_trace(mod: Any, trace: str | list[Any]) -> Any:
    """Apply a full trace (JSON) and return the schedule. Raises one of BROKEN."""
    value = json.loads(trace) if isinstance(trace, str) else trace
    check_trace(*value)
    load_intrinsics_of(str(value))
    schedule = Schedule(mod, seed=1, debug_mask="none", error_render_level="none")
    Trace.apply_json_to_schedule(value, schedule)
    check_schedule(schedule.mod)
    return schedule


def read_database(directory: str, target: str, scratch: str) -> Readable:
    """Copy a directory's good records into `scratch`; return their number and the bad lines.
    Raises NotFound if a file is missing, InvalidRequest if it is for another target."""
    source = Path(directory)
    for name in FILES:
        if not (source / name).is_file():
            raise NotFound(
                f"no schedules in {directory}: {name} is missing", hint="mallorn tune MODEL --out DIR"
            )
    if _written.get(directory) == (target, _file_states(directory)):  # its records were rebuilt then
        for name in FILES:
            shutil.copyfile(source / name, Path(scratch, name))
        return Readable((source / RECORDS).read_bytes().count(b"\n"), [])
    if (source / MANIFEST).is_file():  # without it written by stock TVM: each record names its target
        manifest_target = parse_target(read_manifest(source / MANIFEST).target)
        if manifest_target.text != parse_target(target).text:
            raise InvalidRequest(
                f"these schedules are for target {manifest_target}, not for {target}",
                hint=f"add --target '{manifest_target}'",
            )
    problems: list[BadLine] = []
    programs = dict(good_lines(source / WORKLOADS, program, problems))
    database = JSONDatabase(work_dir=scratch)

    def copy_record(line: list[Any]) -> None:
        index, (trace, run_secs, written_for, _) = line
        if index not in programs:
            raise ValueError(f"line {index + 1} of {WORKLOADS} is missing or incomplete")
        tvm_target, record_target = as_tvm_target(target), tvm.target.Target(written_for)
        if _essential_attributes(record_target, target) != _essential_attributes(tvm_target, target):
            raise ValueError(f"the record is for another target: {json.dumps(written_for)}")
        commit(database, programs[index], trace, run_secs, tvm_target)

    records = list(good_lines(source / RECORDS, copy_record, problems))
    return Readable(len(records), problems)


def _file_states(directory: str) -> list[tuple[int, int, int]]:
    stats = [os.stat(Path(directory, name)) for name in FILES]
    return [(stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in stats]


def good_lines(
    path: Path,
    read: Callable[[list[Any]], T],
    problems: list[BadLine],
    start: int = 0,
    count: int | None = None,
) -> Iterator[tuple[int, T]]:
    """Yield number (from 0) and value of readable lines; add the others to `problems`."""
    end = None if count is None else start + count
    for number, line in islice(enumerate(path.read_text(errors="replace").splitlines()), start, end):
        try:
            yield number, read(json.loads(line))
        except BROKEN as error:
            problems.append(BadLine(path.name, number + 1, describe_error(error)))


def program(line: list[Any]) -> Any:
    """Return the program in a workload file's line. Raises Unschedulable if not allowed."""
    # TVM's own reader would refuse files from a platform whose structural hash differs.
    # The first eight bytes are the length of the text.
    return parse_module(base64.b64decode(line[1], validate=True)[8:].decode())


def _essential_attributes(tvm_target: Any, text: str) -> dict[str, object]:
    """Return a target's attributes except those that TVM adds and `text` does not name."""
    added_by_tvm = {"tag", "keys", "mtriple"} - parse_target(text).attrs.keys()
    attributes = json.loads(str(tvm_target))
    return {name: value for name, value in attributes.items() if name not in added_by_tvm}


class _WorkloadLine(NamedTuple):
    """A program from a workload file. `names` maps the file's block names to ours."""

    task: ModelTask
    names: Mapping[str, str]


def read_schedule_directory(directory: str, target: str) -> RestoredLog:
    return _read(directory, target, 0, None)


def read_metaschedule_log(directory: str, start: int, count: int) -> RestoredLog:
    return _read(directory, None, start, count)


def _read(directory: str, target: str | None, start: int, count: int | None) -> RestoredLog:
    problems: list[BadLine] = []

    def read_workload(line: list[Any]) -> _WorkloadLine:
        mod = program(line)
        return _WorkloadLine(
            describe_task(rename_blocks_canonically(mod), name="", weight=1), canonical_names(mod)
        )

    programs = dict(good_lines(Path(directory, WORKLOADS), read_workload, problems))
    if start:  # reported with the first lines
        problems.clear()
    reported = len(problems)
    path = Path(directory, RECORDS)
    lines = good_lines(path, lambda line: _record(line, programs, target), problems, start, count)
    records = [replace(record, line=number + 1) for number, record in lines]
    return RestoredLog(records, problems, tvm.__version__, len(records) + len(problems) - reported)


def _record(line: list[Any], programs: dict[int, _WorkloadLine], target: str | None) -> Restored:
    index, (full, run_secs, written_for, _) = line
    if index not in programs:
        raise ValueError(f"line {index + 1} of {WORKLOADS} is missing or incomplete")
    task, names = programs[index]
    target_text = target or plain_target(written_for)
    steps, sampled = full
    check_trace(steps, sampled)

    # The sketch: the steps before postprocessing, which look up blocks by our names.
    sketch_steps: list[Any] = []
    for kind, inputs, attributes, outputs in steps:
        if kind == "EnterPostproc":
            break
        if kind == "GetSBlock":
            block, *rest = attributes
            attributes = [names.get(block, block), *rest]
        sketch_steps.append([kind, inputs, attributes, outputs])
    insts = instructions(task.tir, json.dumps(sketch_steps))
    trace = trace_text(Trace(insts, {}))
    values = dict(sampled)
    decisions: list[int] = []
    for position, inst in enumerate(insts):
        if is_choice(inst):
            value = values[position]
            decisions += value if isinstance(value, list) else [value]

    if full_trace(task.tir, target_text, trace, decisions) is None:
        raise ValueError("this version of TVM cannot rebuild the schedule")
    insts = instructions(task.tir, trace)
    choices = choices_of(task.tir, insts, Trace(insts, map_choices_to_decisions(insts, decisions)), {})
    times = [float(seconds) for seconds in run_secs]
    if UNTIMED_SEC in times:
        raise ValueError(NOT_TIMED)
    runs = times if all(0 < seconds < _FAILED_SEC for seconds in times) else []
    return Restored(task, Sketch(sketch_key(trace), trace, choices), tuple(decisions), runs, target_text, 0)


def plain_target(written_for: Any) -> str:
    """Return a target's text without attributes that TVM adds. Raises InvalidTarget."""
    attributes = json.loads(str(tvm.target.Target(written_for)))
    added_by_tvm = {"keys", "tag"}
    if attributes.get("mtriple") == llvm_get_system_triple():
        added_by_tvm.add("mtriple")
    names = attributes.keys() & KNOWN_KEYS - added_by_tvm
    return parse_target({name: attributes[name] for name in names}).text
