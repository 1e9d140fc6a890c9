"""Schedules in the form that people read."""

from typing import Any

import pytest

from mallorn.workers.tvm.model_compiler_child import scripts
from mallorn.workers.tvm.programs.allowed_programs import TraceRefused


def test_both_programs_and_every_step_can_be_read(mlp: Any) -> None:
    record = mlp.records[0]
    found = scripts(record.tir, record.trace)
    assert "def main" in found.original
    assert "def main" in found.scheduled
    assert found.original != found.scheduled
    assert all("sch." in line for line in found.trace.splitlines())


def test_extents_are_plain_numbers(mlp: Any) -> None:
    record = mlp.records[0]
    assert "T.int64" not in scripts(record.tir, record.trace).original


def test_a_trace_of_another_program_is_refused(mlp: Any) -> None:
    with pytest.raises(TraceRefused, match="an instruction that does not exist"):
        scripts(mlp.records[0].tir, "[[], [[0, 1]]]")
