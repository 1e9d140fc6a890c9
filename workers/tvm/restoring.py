"""From the schedules of an export back to workloads and candidates, as a dataset holds them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tvm
from tvm.s_tir.schedule import Trace

from mallorn.core.values.manifest import RECORDS, WORKLOADS
from workers.faces.graphs import BadLine, Restored, RestoredLog
from workers.search.space import Sketch
from workers.tvm.logs import good_lines, program
from workers.tvm.programs import instructions, is_choice
from workers.tvm.rebuild import bind, full_trace
from workers.tvm.sketches import choices_of, sketch_key, trace_text
from workers.tvm.tasks import describe
from workers.tvm.workload import canonical

_POSTPROCESSING = "EnterPostproc"


def read_export(directory: str, target: str) -> RestoredLog:
    """Every record of a directory; bad lines are problems."""
    problems: list[BadLine] = []
    programs = dict(good_lines(Path(directory, WORKLOADS), program, problems))
    lines = good_lines(Path(directory, RECORDS), lambda line: _record(line, programs, target), problems)
    return RestoredLog([record for _, record in lines], problems, tvm.__version__)


def _record(line: list[Any], programs: dict[int, Any], target: str) -> Restored:
    index, (tuned, run_secs, _, _) = line
    if index not in programs:
        raise ValueError(f"its workload, line {index + 1} of {WORKLOADS}, is missing or torn")
    task = describe(canonical(programs[index]), name="", weight=1)
    trace, decisions = _taken_apart(task.tir, *tuned)
    if full_trace(task.tir, target, trace, decisions) is None:
        raise ValueError("it does not rebuild with this version of TVM")
    insts = instructions(task.tir, trace)
    choices = choices_of(task.tir, insts, Trace(insts, bind(insts, decisions)))
    times = [float(seconds) for seconds in run_secs]
    return Restored(task, Sketch(sketch_key(trace), trace, choices), tuple(decisions), times)


def _taken_apart(tir: str, steps: Sequence[Any], taken: Sequence[Any]) -> tuple[str, list[int]]:
    """A full trace as the sketch it came from, and the decisions in the order of its choices."""
    kinds = [step[0] for step in steps]
    end = kinds.index(_POSTPROCESSING) if _POSTPROCESSING in kinds else len(kinds)
    insts = instructions(tir, json.dumps(steps[:end]))
    values = dict(taken)
    decisions: list[int] = []
    for place, inst in enumerate(insts):
        if is_choice(inst):
            value = values[place]
            decisions += value if isinstance(value, list) else [value]
    return trace_text(Trace(insts, {})), decisions
