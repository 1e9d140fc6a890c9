"""Whatever happens to the runner: a candidate on the device gets a result, all else is raised."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from mallorn.core.errors import NoDevice, Unavailable
from mallorn.core.job_options import JobOptions
from mallorn.core.outcomes import Outcome
from mallorn.core.targets import parse_target
from mallorn.core.values.fleet import DeviceInfo
from mallorn.searchers.space import Candidate, Sketch
from mallorn.workers.interfaces import device_runner as module
from mallorn.workers.interfaces.device_runner import Runner
from mallorn.workers.interfaces.tensor_arguments import Arguments
from mallorn.workers.measure import device_runs as timing
from mallorn.workers.measure.build_candidates import BuiltCandidate
from mallorn.workers.measure.device_runs import DeviceRuns
from mallorn.workers.measure.measurer_interface import MeasureInput, Program
from tests.fixtures.faces import OddRunner
from tests.fixtures.waiting import PATIENCE

TARGET = parse_target({"kind": "llvm", "num-cores": 2})
PROGRAM = Program(key="p" * 64, tir="", args=Arguments(()), flops=1.0)


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with OddRunner(name="runner") as child:
        yield child


def timing_of(runner: Runner, tracker: str = "tracker", timeout_sec: float = PATIENCE) -> DeviceRuns:
    return DeviceRuns(runner, tracker, TARGET, PROGRAM, JobOptions(), timeout_sec)


def timing_in_a_round(runner: Runner, best_us: float | None) -> DeviceRuns:
    options = TARGET, PROGRAM, JobOptions()
    return DeviceRuns(runner, "tracker", *options, PATIENCE, best_us, keeps_best=True)


def library(folder: Path, what: str) -> BuiltCandidate:
    (folder / what).write_text(what)
    return BuiltCandidate(
        MeasureInput(3, Candidate("s", (1,)), Sketch("s", "[]", ())), folder / what, (), 7.0
    )


def test_a_timed_candidate_has_its_device_and_its_costs(runner: Runner, tmp_path: Path) -> None:
    result = timing_of(runner).measure(library(tmp_path, "good"))
    assert (result.slot, result.trial.outcome) == (3, Outcome.OK)
    assert (result.trial.build_ms, result.trial.run_ms) == (7.0, 1.0)
    assert result.endpoint is not None
    assert (result.endpoint.name, result.endpoint.info) == ("odd", DeviceInfo(cores=2))


@pytest.mark.parametrize("known_us", [None, 1e6])
def test_in_a_round_the_next_is_timed_beside_the_fastest_before(
    runner: Runner, tmp_path: Path, known_us: float | None
) -> None:
    timing = timing_in_a_round(runner, known_us)
    first = timing.measure(library(tmp_path, "good")).trial.latency_us
    assert timing.measure(library(tmp_path, "told")).trial.latency_us == first


def test_in_a_round_a_slower_one_changes_nothing_for_the_next(runner: Runner, tmp_path: Path) -> None:
    timing = timing_in_a_round(runner, 1.5)
    timing.measure(library(tmp_path, "good"))
    assert timing.measure(library(tmp_path, "told")).trial.latency_us == 1.5


def test_a_time_that_others_disturbed_is_a_bound_and_nobody_is_timed_beside_it(
    runner: Runner, tmp_path: Path
) -> None:
    timing = timing_in_a_round(runner, 1.5)
    result = timing.measure(library(tmp_path, "disturbed"))
    assert result.trial.is_bound
    assert result.trial.time_us is None
    assert result.trial.latency_us == 0.25
    assert result.disturbance is not None
    assert result.disturbance.upper_bounds == 1
    assert timing.measure(library(tmp_path, "told")).trial.latency_us == 1.5


def test_a_job_that_waits_for_quiet_hands_its_round_back_and_says_who_disturbs(
    runner: Runner, tmp_path: Path
) -> None:
    options = JobOptions(wait_for_quiet=True)
    timing = DeviceRuns(runner, "tracker", TARGET, PROGRAM, options, PATIENCE)
    with pytest.raises(Unavailable, match=r"quiet host: other programs use 2\.0 of 2 cores"):
        timing.measure(library(tmp_path, "disturbed"))
    assert timing.measure(library(tmp_path, "good")).trial.outcome is Outcome.OK


def test_elsewhere_nobody_is_timed_beside_those_before(runner: Runner, tmp_path: Path) -> None:
    timing = timing_of(runner)
    timing.measure(library(tmp_path, "good"))
    assert timing.measure(library(tmp_path, "told")).trial.latency_us == 0.5


@pytest.mark.parametrize(
    ("what", "outcome", "text"),
    [
        ("crash", Outcome.RUN_ERROR, "SIGABRT"),
        ("odd", Outcome.RUN_ERROR, "KeyError"),
    ],
)
def test_a_runner_that_fails_on_a_candidate_is_a_result(
    runner: Runner, tmp_path: Path, what: str, outcome: Outcome, text: str
) -> None:
    held = timing_of(runner)
    bad = held.measure(library(tmp_path, what))
    assert bad.trial.outcome is outcome
    assert text in bad.trial.error
    assert held.measure(library(tmp_path, "good")).trial.outcome is Outcome.OK


def test_a_candidate_whose_device_falls_silent_is_lost_and_the_next_is_timed(
    runner: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = timing_of(runner, timeout_sec=0.2)
    monkeypatch.setattr(module, "GRACE_SEC", 0.3)
    bad = held.measure(library(tmp_path, "hang"))
    assert bad.trial.outcome is Outcome.WORKER_LOST
    assert "longer than" in bad.trial.error
    monkeypatch.setattr(module, "GRACE_SEC", PATIENCE)
    assert held.measure(library(tmp_path, "good")).trial.outcome is Outcome.OK


def test_the_time_that_a_runner_takes_to_start_is_not_the_candidates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with OddRunner() as fresh:
        clock = SimpleNamespace(monotonic=lambda: 100.0 if fresh.ready else 0.0)
        monkeypatch.setattr("mallorn.workers.subprocesses.pending_call.time", clock)
        monkeypatch.setattr(timing, "DEVICE_WAIT_SEC", 5.0)
        assert timing_of(fresh, "slow").measure(library(tmp_path, "good")).trial.outcome is Outcome.OK


def test_a_lost_device_is_nobodys_result(runner: Runner, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="lost"):
        timing_of(runner).measure(library(tmp_path, "lost"))


def test_a_missing_device_is_raised_while_it_is_taken(runner: Runner) -> None:
    with pytest.raises(NoDevice):
        timing_of(runner, "nobody").take_device()


def test_a_tracker_that_stays_silent_is_not_waited_for_for_ever(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GRACE_SEC", 0.3)
    monkeypatch.setattr(timing, "DEVICE_WAIT_SEC", 0.3)
    with pytest.raises(Unavailable, match="no device could be taken"):
        timing_of(runner, "silent").take_device()


def test_giving_back_in_the_middle_ends_the_runner(runner: Runner, tmp_path: Path) -> None:
    held = timing_of(runner)
    held.take_device()
    assert held.is_idle
    held.start_timing(library(tmp_path, "hang"))
    held.release_device()
    assert not runner.alive


def test_giving_back_what_was_never_taken_starts_nothing() -> None:
    with OddRunner() as fresh:
        timing_of(fresh).release_device()
        assert not fresh.alive
