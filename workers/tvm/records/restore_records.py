"""Convert tuning records of Mallorn or stock MetaSchedule to workloads and candidates."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import tvm
from tvm.s_tir.schedule import Trace
from tvm.target.codegen import llvm_get_system_triple

from mallorn.core.targets import KNOWN_KEYS, parse_target
from mallorn.core.values.manifest import NOT_TIMED, RECORDS, UNTIMED_SEC, WORKLOADS
from mallorn.searchers.space import Sketch
from mallorn.workers.interfaces.model_compiler import BadLine, ModelTask, Restored, RestoredLog
from mallorn.workers.tvm.network.extract_tasks import describe_task
from mallorn.workers.tvm.programs.allowed_programs import check_trace
from mallorn.workers.tvm.programs.parsed_program_cache import instructions, is_choice
from mallorn.workers.tvm.programs.workload_key import canonical_names, rename_blocks_canonically
from mallorn.workers.tvm.records.tuning_database import good_lines, program
from mallorn.workers.tvm.space.rebuild_schedule import full_trace, map_choices_to_decisions
from mallorn.workers.tvm.space.sketches import choices_of, sketch_key, trace_text

_POSTPROCESSING = "EnterPostproc"
_FINDS_BLOCK = "GetSBlock"
_FAILED_SEC: Final = 1e9  # MetaSchedule and Mallorn write 1e10 if a schedule was never timed
_TVMS_OWN: Final = frozenset({"keys", "tag"})  # attributes that TVM adds to every target


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
        if kind == _POSTPROCESSING:
            break
        if kind == _FINDS_BLOCK:
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
    added_by_tvm = set(_TVMS_OWN)
    if attributes.get("mtriple") == llvm_get_system_triple():
        added_by_tvm.add("mtriple")
    names = attributes.keys() & KNOWN_KEYS - added_by_tvm
    return parse_target({name: attributes[name] for name in names}).text
