"""Real candidates through real builders, a real tracker and a real device."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from mallorn.core.errors import NoDevice, Unavailable
from mallorn.core.job_options import EvaluatorOptions, JobOptions
from mallorn.core.outcomes import Outcome
from mallorn.core.settings import Settings
from mallorn.core.targets import Target
from mallorn.searchers.space import Candidate
from mallorn.workers.interfaces.candidate_compiler import CandidateCompiler, Library
from mallorn.workers.interfaces.device_runner import Runner
from mallorn.workers.measure import tvm_measurer
from mallorn.workers.measure.measurer_interface import MeasureInput, Tools
from mallorn.workers.measure.stopping.incremental_timing import ENOUGH
from mallorn.workers.measure.tvm_measurer import TvmMeasurer
from mallorn.workers.subprocesses.process_pool import ChildPool
from tests.fixtures.fleet import Subject, TestFleet, with_cores
from tests.kits.measurers import MeasurerTestCase, Workplace

pytestmark = pytest.mark.usefixtures("ample_time")
OPTIONS = JobOptions(
    build_timeout_sec=120, run_timeout_sec=60, evaluator=EvaluatorOptions(number=2, repeat=3, min_repeat_ms=1)
)


@pytest.fixture(scope="module")
def builders() -> Iterator[ChildPool[Library]]:
    with ChildPool(partial(CandidateCompiler, name="builder"), 2) as pool:
        yield pool


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with Runner(name="runner") as child:
        yield child


@pytest.fixture(params=["beside the builders", "on another host"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the device stands decides between alternating and overlapping."""
    if request.param == "on another host":
        monkeypatch.setattr(tvm_measurer, "host_id", lambda: "elsewhere")


@pytest.mark.usefixtures("place")
class TestTvmMeasurer(MeasurerTestCase):
    """Two candidates that run and one whose decisions make no program."""

    @pytest.fixture
    def measurer(self, fleet: TestFleet, builders: ChildPool[Library], runner: Runner) -> TvmMeasurer:
        return TvmMeasurer(Tools(fleet.settings, builders, runner))

    @pytest.fixture
    def workplace(self, subject: Subject, local_target: Target) -> Workplace:
        good, sketch = subject.slots[:2], subject.slots[0].sketch
        impossible = MeasureInput(2, Candidate(sketch.key, (0,) * sketch.decision_count), sketch)
        return Workplace(subject.program, local_target, [*good, impossible])


@pytest.mark.usefixtures("place")
def test_every_candidate_is_built_and_timed_once(
    fleet: TestFleet, local_target: Target, subject: Subject, builders: ChildPool[Library], runner: Runner
) -> None:
    measurer = TvmMeasurer(Tools(fleet.settings, builders, runner))
    results = list(measurer.measure(subject.program, local_target, subject.slots, OPTIONS))
    assert sorted(result.slot for result in results) == [slot.slot for slot in subject.slots]
    repeat = OPTIONS.evaluator.repeat
    for result in results:
        assert result.trial.outcome is Outcome.OK, result.trial.error
        assert repeat >= len(result.trial.run_us) >= ENOUGH * repeat, (
            "those that others disturbed may be missing"
        )
        assert min(result.trial.run_us) > 0
        assert result.endpoint is not None
        assert result.endpoint.threads == local_target.num_cores
    expected = [f"{subject.program.key[:16]}/{slot.candidate.key}" for slot in subject.slots]
    assert sorted(fleet.executions()) == sorted(expected)


@pytest.mark.usefixtures("place")
def test_closing_early_frees_builders_and_device(
    fleet: TestFleet, local_target: Target, subject: Subject, builders: ChildPool[Library], runner: Runner
) -> None:
    measurer = TvmMeasurer(Tools(fleet.settings, builders, runner))
    stream = measurer.measure(subject.program, local_target, subject.slots, OPTIONS)
    next(stream)
    stream.close()
    assert len(builders.idle) == 2
    fleet.wait_free(local_target)
    assert len(fleet.executions()) < len(subject.slots)


def test_no_file_of_a_round_stays_behind(
    fleet: TestFleet,
    local_target: Target,
    subject: Subject,
    builders: ChildPool[Library],
    runner: Runner,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    measurer = TvmMeasurer(Tools(fleet.settings, builders, runner))
    assert list(measurer.measure(subject.program, local_target, subject.slots[:1], OPTIONS))
    # But the locks by which this host's workers know of one another.
    assert [path for path in tmp_path.iterdir() if path.suffix not in {".lock", ".gate"}] == []


def test_without_a_device_for_the_target_nothing_is_built(
    fleet: TestFleet, local_target: Target, subject: Subject, builders: ChildPool[Library], runner: Runner
) -> None:
    other = with_cores(local_target, local_target.num_cores + 1)
    with pytest.raises(NoDevice):
        list(
            TvmMeasurer(Tools(fleet.settings, builders, runner)).measure(
                subject.program, other, subject.slots, OPTIONS
            )
        )
    assert len(builders.idle) == 2


def test_a_tracker_that_is_gone_is_said_so(
    local_target: Target, subject: Subject, builders: ChildPool[Library], runner: Runner
) -> None:
    nowhere = Settings(tracker="127.0.0.1:1")
    with pytest.raises(Unavailable, match="tracker"):
        list(
            TvmMeasurer(Tools(nowhere, builders, runner)).measure(
                subject.program, local_target, subject.slots, OPTIONS
            )
        )
