"""run_batch.py brings few modules of Mallorn: what it copied must stay what a device's session does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mallorn.core.job_options import EvaluatorOptions
from mallorn.core.registry import resolve
from mallorn.workers.detached import run_batch
from mallorn.workers.detached.pack_batch import RULES, TIMED_FLOATS, TIMED_INTS
from mallorn.workers.detached.run_batch import Timing
from mallorn.workers.device import cpu_speed_limits, detect_host
from mallorn.workers.device.random_and_saved_arrays import draw_arguments
from mallorn.workers.interfaces.tensor_arguments import FREE_RANGE
from mallorn.workers.tvm.compile.reference_outputs import random_arguments
from mallorn.workers.tvm.programs.parsed_program_cache import parse_module
from mallorn.workers.tvm.sessions import remote_device
from tests.fixtures.hazards import matmul

US = st.floats(min_value=0.5, max_value=1e6)


@pytest.mark.parametrize("rule", RULES)
@given(
    number=st.integers(1, 1000),
    repeat=st.integers(1, 20),
    min_repeat_ms=st.integers(0, 1000),
    run_us=st.lists(US, max_size=12),
    best_us=st.none() | US,
)
def test_a_rule_stops_when_the_one_of_a_device_does(
    rule: str, number: int, repeat: int, min_repeat_ms: int, run_us: list[float], best_us: float | None
) -> None:
    asked = EvaluatorOptions(number=number, repeat=repeat, min_repeat_ms=min_repeat_ms)
    theirs = resolve("stopping", rule)().next_timing(asked, run_us, best_us)
    ours = run_batch.next_timing(rule, Timing(number, repeat, min_repeat_ms), run_us, best_us)
    assert ours == (None if theirs is None else (theirs.number, theirs.repeat, theirs.min_repeat_ms))


def test_arguments_of_timings_lie_in_the_ranges_of_a_device() -> None:
    assert TIMED_FLOATS == remote_device.FLOAT_RANGE
    assert TIMED_INTS == remote_device.INT_RANGE


def test_a_check_draws_the_arguments_of_the_reference() -> None:
    program = matmul()
    theirs = random_arguments(parse_module(program.tir), program.args, 5)
    draws = program.args.with_full_byte_range().describe_draws(FREE_RANGE, (-1.0, 1.0))
    ours = draw_arguments(draws, 5)
    assert [each.tobytes() for each in ours] == [each.tobytes() for each in theirs]


def test_a_host_is_of_the_class_that_its_own_device_would_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detect_host, "cpu_quota", lambda: None)
    monkeypatch.setattr(cpu_speed_limits, "cpu_quota", lambda: 1.5)
    ours = run_batch.describe_device("0.27", 2)["host_class"]
    assert ours == detect_host.read_host_facts()["host_class"]
