"""One bad candidate costs its own slot: not the round, not the builders, not the device."""

import json
from functools import partial

import pytest

from mallorn.core.errors import Unavailable
from mallorn.core.job_options import EvaluatorOptions, JobOptions
from mallorn.core.outcomes import Outcome
from mallorn.core.targets import Target
from mallorn.workers.interfaces.candidate_compiler import CandidateCompiler
from mallorn.workers.interfaces.device_runner import Runner
from mallorn.workers.measure import run_timeout_and_retakes as run_timeout
from mallorn.workers.measure.measurer_interface import Tools
from mallorn.workers.measure.tvm_measurer import TvmMeasurer
from mallorn.workers.subprocesses.process_pool import ChildPool
from tests.fixtures.faces import Hazards
from tests.fixtures.fleet import Subject, TestFleet

pytestmark = pytest.mark.usefixtures("ample_time")
# What is no hazard must not run into a limit, however busy the machine is; a loop lasts as long as its limit.
OPTIONS = JobOptions(
    build_timeout_sec=10,
    run_timeout_sec=8,
    evaluator=EvaluatorOptions(number=1, repeat=1, min_repeat_ms=0),
)
BAD_SLOT = 1


@pytest.mark.parametrize(
    ("hazard", "outcome", "text"),
    [
        ("build_segfault", Outcome.BUILD_ERROR, "SIGSEGV"),
        ("build_killed", Outcome.WORKER_LOST, "SIGKILL"),
        ("build_loop", Outcome.BUILD_TIMEOUT, "10 s"),
        ("run_segfault", Outcome.RUN_ERROR, "SIGSEGV"),
        ("run_loop", Outcome.RUN_TIMEOUT, "did not return in time"),
        ("run_error", Outcome.RUN_ERROR, "no.such.function"),
    ],
)
def test_a_bad_candidate_costs_its_own_slot(
    fleet: TestFleet,
    local_target: Target,
    subject: Subject,
    standing_runner: Runner,
    hazard: str,
    outcome: Outcome,
    text: str,
) -> None:
    hazards = {"HAZARDS": json.dumps({str(BAD_SLOT): hazard})}
    with ChildPool(partial(Hazards, env=hazards, name="builder"), 2) as builders:
        measurer = TvmMeasurer(Tools(fleet.settings, builders, standing_runner))
        results = {r.slot: r for r in measurer.measure(subject.program, local_target, subject.slots, OPTIONS)}
        assert len(builders.idle) == 2
    bad = results.pop(BAD_SLOT)
    assert (bad.trial.outcome, bad.trial.run_us) == (outcome, ())
    assert text in bad.trial.error
    assert [result.trial.outcome for result in results.values()] == [Outcome.OK] * (len(subject.slots) - 1)
    built = len(subject.slots) - (1 if hazard.startswith("build") else 0)
    assert len(fleet.executions()) == built
    assert (bad.endpoint is None) == hazard.startswith("build")
    fleet.wait_free(local_target)


def test_a_candidate_that_is_ended_in_the_middle_of_its_timing_is_a_failed_trial(
    fleet: TestFleet,
    local_target: Target,
    subject: Subject,
    standing_runner: Runner,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Seconds for timings again are added to the limit, and would let ten seconds of timing end within it.
    monkeypatch.setattr(run_timeout.Retakes, "left_sec", lambda _: 0.0)
    long = EvaluatorOptions(number=1, repeat=1, min_repeat_ms=10_000)
    slow = OPTIONS.model_copy(update={"run_timeout_sec": 1, "evaluator": long, "stopping": "racing"})
    with ChildPool(partial(CandidateCompiler, name="builder"), 1) as builders:
        measurer = TvmMeasurer(Tools(fleet.settings, builders, standing_runner))
        (ended,) = measurer.measure(subject.program, local_target, subject.slots[:1], slow)
        assert (ended.trial.outcome, ended.trial.run_us) == (Outcome.RUN_TIMEOUT, ())
        assert "did not return in time" in ended.trial.error
        (whole,) = measurer.measure(subject.program, local_target, subject.slots[:1], OPTIONS)
        assert whole.trial.outcome is Outcome.OK


def test_a_session_that_is_lost_between_two_candidates_is_the_fault_of_neither(
    fleet: TestFleet, local_target: Target, subject: Subject, standing_runner: Runner
) -> None:
    with ChildPool(partial(CandidateCompiler, name="builder"), 1) as builders:
        measurer = TvmMeasurer(Tools(fleet.settings, builders, standing_runner))
        stream = measurer.measure(subject.program, local_target, subject.slots, OPTIONS)
        results = [next(stream)]
        fleet.lose_session()
        results += stream
    assert [(each.trial.outcome, each.trial.error) for each in results] == [(Outcome.OK, "")] * len(
        subject.slots
    )
    assert len(fleet.executions()) == len(subject.slots)


def test_a_device_that_dies_is_not_the_candidates_fault(
    lone_tracker: TestFleet, local_target: Target, subject: Subject, standing_runner: Runner
) -> None:
    device = lone_tracker.start_device(local_target)
    lone_tracker.wait_free(local_target)
    hazards = {"HAZARDS": json.dumps({str(BAD_SLOT): "run_loop"})}
    with ChildPool(partial(Hazards, env=hazards, name="builder"), 1) as builders:
        measurer = TvmMeasurer(Tools(lone_tracker.settings, builders, standing_runner))
        stream = measurer.measure(subject.program, local_target, subject.slots, OPTIONS)
        assert next(stream).trial.outcome is Outcome.OK
        device.kill()
        with pytest.raises(Unavailable):
            list(stream)
