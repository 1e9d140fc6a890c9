"""Whatever a device does in whichever call: its candidate fails, or the round goes back."""

from collections.abc import Callable
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tvm.error import RPCError

from mallorn.core.errors import Unavailable
from mallorn.core.job_options import EvaluatorOptions, JobOptions
from mallorn.core.outcomes import Outcome
from mallorn.core.states import WorkKind
from mallorn.core.targets import Target, parse_target
from mallorn.core.values.trial import Trial
from mallorn.searchers.space import Candidate, Sketch
from mallorn.workers.interfaces.device_runner import Runner
from mallorn.workers.interfaces.tensor_arguments import Arguments
from mallorn.workers.measure import device_runs
from mallorn.workers.measure.build_candidates import BuiltCandidate
from mallorn.workers.measure.device_runs import DeviceRuns
from mallorn.workers.measure.measurer_interface import MeasureInput, Program
from mallorn.workers.process.retry_rules import GIVEN_BACK, OTHER_HOST, retry_rule_for
from mallorn.workers.tvm.sessions import remote_device as rpc_session
from tests.fixtures.faulty_device import (
    CALLS,
    DiedError,
    FaultyDevice,
    FaultySession,
    LateError,
    answers,
    dies,
    offering,
    raises,
)
from tests.fixtures.waiting import PATIENCE

PROGRAM = Program(key="p" * 64, tir="", args=Arguments((("TENSOR", "float32", (4,)),)), flops=1.0)
TARGET = parse_target({"kind": "llvm", "num-cores": 2})
FAULTS: dict[str, Callable[[FaultySession], Any]] = {
    "died of SIGSEGV": dies("killed by SIGSEGV"),
    "was too slow": dies("killed by SIGALRM"),
    "was killed": dies("killed by SIGKILL"),
    "was cut off": dies("Connection reset by peer", notice=False),
    "raised": raises(RPCError("Error caught from RPC call:\nInternalError: Check failed")),
    "lacks it": raises(AttributeError("no such function there")),
    "never answered": raises(LateError()),
    "took the runner along": raises(DiedError("SIGABRT")),
    "told nothing": answers(None),
    "told no JSON": answers("{"),
    "told another's JSON": answers("[]"),
    "told no number": answers("nan"),
    "told no times": answers([]),
    "told two times": answers([1.0, 1.0]),
    "told no finite time": answers([nan]),
    "told an endless time": answers([inf]),
    "told a time before its start": answers([-1.0]),
}
NOT_ITS_DOING = ("was killed", "was cut off", "never answered")
FORGOTTEN = (Outcome.OK, Outcome.WORKER_LOST)
built_of = BuiltCandidate(
    MeasureInput(0, Candidate("s", (1,)), Sketch("s", "[]", ())), Path(__file__), PROGRAM.args.args, 7.0
)


def timing_with(runner: Runner, stopping: str, target: Target = TARGET) -> DeviceRuns:
    options = JobOptions(stopping=stopping, evaluator=EvaluatorOptions(flush_l2="off"))
    return DeviceRuns(runner, "tracker:1", target, PROGRAM, options, PATIENCE)


def tried(on: DeviceRuns) -> Trial | None:
    """What became of a candidate; None where its round goes back. Whatever else is raised is our failure."""
    try:
        return on.measure(built_of).trial
    except Unavailable as error:
        if retry_rule_for(error, WorkKind.ROUND) in (GIVEN_BACK, OTHER_HOST):
            return None
        raise


@pytest.fixture(autouse=True, scope="module")
def _impatient() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device_runs, "DEVICE_WAIT_SEC", 0.0)
        yield


def test_a_candidate_beside_which_the_machine_slept_is_timed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    slept = iter([0.0, 3600.0, 3600.0, 3600.0])
    monkeypatch.setattr(rpc_session, "_suspended_sec", lambda: next(slept))
    with offering(FaultyDevice("none", answers(None))) as runner:
        on = timing_with(runner, "fixed")
        assert tried(on) is None
        again = tried(on)
    assert again is not None
    assert again.outcome is Outcome.OK


@given(
    call=st.sampled_from(CALLS),
    fault=st.sampled_from(sorted(FAULTS)),
    nth=st.integers(0, 2),
    stopping=st.sampled_from(["fixed", "racing"]),
)
@example("mallorn.time_slices", "was too slow", 1, "racing")
@example("mallorn.identity", "told another's JSON", 0, "racing")
@example("mallorn.identity", "never answered", 0, "racing")
@example("remove", "was cut off", 0, "racing")
@example("upload", "never answered", 0, "racing")
@example("mallorn.time_slices", "was killed", 1, "racing")
def test_a_devices_fault_is_a_failed_trial_or_a_round_that_goes_back(
    call: str, fault: str, nth: int, stopping: str
) -> None:
    device = FaultyDevice(call, FAULTS[fault], nth)
    with offering(device) as runner:
        on = timing_with(runner, stopping)
        ends = [tried(on) for _ in range(4)]
    assert any(end is not None and end.outcome is Outcome.OK for end in ends[-2:]), "the next is whole"
    failed = [end for end in ends if end is None or end.outcome.failed]
    assert len(failed) <= 1
    if fault in NOT_ITS_DOING:
        assert all(end is None or end.outcome in FORGOTTEN for end in ends), "later jobs may try it"
