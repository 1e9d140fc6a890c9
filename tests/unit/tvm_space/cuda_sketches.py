"""Sketches of one kind for a program, and the records of their candidates as stock TVM replays them."""

import json
from collections.abc import Sequence
from typing import Any

import tvm
from tvm.s_tir.schedule import Trace

from mallorn.searchers.space import Sketch
from mallorn.workers.tvm.programs.allowed_programs import read_trace
from mallorn.workers.tvm.programs.parsed_program_cache import (
    instructions,
    new_schedule,
    parse_module,
    parse_tvm_target,
)
from mallorn.workers.tvm.space.rebuild_schedule import full_trace, rebuild
from mallorn.workers.tvm.space.sketches import choices_of, sketch_key, trace_text
from tests.unit.tvm_space.cuda_programs import target

HERE = target("sm_90a")


def sketches_of(schedules: Any, tir: str, target_text: str = HERE) -> list[Sketch]:
    """Return the kind's own sketches: a whole design space takes seconds."""
    traces = [each.trace for each in schedules(parse_module(tir), parse_tvm_target(target_text))]
    texts = [trace_text(trace) for trace in traces]
    return [
        Sketch(sketch_key(text), text, choices_of(tir, instructions(tir, text), trace, {}))
        for text, trace in zip(texts, traces, strict=True)
    ]


def assert_replayed(tir: str, sketch: Sketch, decisions: Sequence[int]) -> str:
    """Assert that stock TVM replays a candidate's record as we rebuild it, and return the record.

    The trace passes the allow-list, and TVM applies it with the decisions alone.
    """
    read_trace(sketch.trace)
    text = full_trace(tir, HERE, sketch.trace, tuple(decisions))
    rebuilt = rebuild(tir, HERE, sketch.trace, tuple(decisions))
    assert text is not None
    assert rebuilt is not None
    replayed = new_schedule(tir)
    Trace.apply_json_to_schedule(json.loads(text), replayed)
    tvm.ir.assert_structural_equal(replayed.mod, rebuilt.mod)
    return text
