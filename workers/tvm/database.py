"""Writing MetaSchedule's JSON database: through TVM itself, by one writer, every record proven first."""

import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.database import JSONDatabase, TuningRecord
from tvm.s_tir.schedule import Schedule, Trace

from mallorn.core.values.manifest import RECORDS, WORKLOADS
from workers.faces.graphs import Skipped, Tuned
from workers.tvm.passes import as_tvm_target
from workers.tvm.programs import parse_module

# What TVM raises over a trace that does not fit its program, or that is no trace at all.
BROKEN = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


def write_database(directory: str, target: str, records: Sequence[Tuned]) -> list[Skipped]:
    """Write records where stock `JSONDatabase(work_dir=...)` finds them.

    A record that does not rebuild is left out and told: one bad line makes TVM refuse the whole file. Each
    file appears complete or not at all.
    """
    Path(directory).mkdir(parents=True, exist_ok=True)
    skipped = []
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        database = JSONDatabase(work_dir=scratch)
        for index, record in enumerate(records):
            try:
                mod = parse_module(record.tir)
                commit(database, mod, record.trace, record.run_secs, as_tvm_target(target))
            except BROKEN as error:
                skipped.append(Skipped(index, str(error)[:500]))
        for name in (WORKLOADS, RECORDS):
            os.replace(Path(scratch, name), Path(directory, name))
    return skipped


def commit(database: Any, mod: Any, trace: str | list[Any], run_secs: list[float], target: Any) -> None:
    """Add one record after applying its whole trace, postprocessing included. Raises one of BROKEN."""
    if not run_secs or not all(0 < seconds < 1e9 for seconds in run_secs):
        raise ValueError("a record needs run times above zero")
    schedule = replay(mod, trace)
    arguments = ArgInfo.from_entry_func(schedule.mod, remove_preproc=True)
    workload = database.commit_workload(mod)
    database.commit_tuning_record(TuningRecord(schedule.trace, workload, run_secs, target, arguments))


def replay(mod: Any, trace: str | list[Any]) -> Any:
    """The schedule that a full trace (JSON, as text or value) makes of a program. Raises one of BROKEN."""
    value = json.loads(trace) if isinstance(trace, str) else trace
    instructions, decisions = value
    # TVM checks everything else itself; this it follows into a segmentation fault.
    if not all(0 <= place < len(instructions) for place, _ in decisions):
        raise ValueError("a decision for an instruction that is not there")
    schedule = Schedule(mod, seed=1, debug_mask="none", error_render_level="none")
    Trace.apply_json_to_schedule(value, schedule)
    return schedule
