"""The measurer of devices keeps its contract, whatever compiles and whatever measures."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest

from mallorn.core.job_options import JobOptions
from mallorn.core.outcomes import Outcome
from mallorn.core.settings import Settings
from mallorn.core.targets import Target, parse_target
from mallorn.searchers.space import Candidate, Sketch
from mallorn.workers.device.device_class import Endpoint
from mallorn.workers.interfaces.candidate_compiler import Library
from mallorn.workers.interfaces.tensor_arguments import Arguments
from mallorn.workers.measure.measurer_interface import MeasureInput, Program, Tools
from mallorn.workers.measure.tracked_devices import Fleet, TrackedDevice
from mallorn.workers.measure.tvm_measurer import TvmMeasurer
from mallorn.workers.subprocesses.process_pool import ChildPool
from tests.fixtures.faces import OddBuilder, OddRunner
from tests.kits.measurers import MeasurerTestCase, Workplace

TARGET = parse_target({"kind": "llvm", "num-cores": 2})
DEVICE = TrackedDevice("key", TARGET.text, False, Endpoint("odd", "elsewhere", "c", 2, "0"))
SKETCH = Sketch("sketch", "[]", ())
PROGRAM = Program("p" * 64, "", Arguments(()), 1.0)


@pytest.fixture(scope="module")
def builders() -> Iterator[ChildPool[Library]]:
    with ChildPool(partial(OddBuilder, name="builder"), 2) as pool:
        yield pool


@pytest.fixture(scope="module")
def runner() -> Iterator[OddRunner]:
    with OddRunner(name="runner") as child:
        yield child


class TestTvmMeasurer(MeasurerTestCase):
    """Its processes are real, and what they serve is made up."""

    @pytest.fixture
    def measurer(
        self, builders: ChildPool[Library], runner: OddRunner, monkeypatch: pytest.MonkeyPatch
    ) -> TvmMeasurer:
        def devices(_fleet: Fleet, _target: Target | None = None) -> list[TrackedDevice]:
            return [DEVICE]

        monkeypatch.setattr(Fleet, "devices", devices)
        return TvmMeasurer(Tools(Settings(tracker="127.0.0.1:1"), builders, runner))

    @pytest.fixture
    def workplace(self) -> Workplace:
        inputs = [
            MeasureInput(at, Candidate("sketch", (first,)), SKETCH) for at, first in enumerate((1, 2, 0))
        ]
        return Workplace(PROGRAM, TARGET, inputs)

    def test_each_pass_is_of_another_device_where_enough_are_alike(
        self,
        builders: ChildPool[Library],
        runner: OddRunner,
        workplace: Workplace,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(Fleet, "devices", lambda *_: [DEVICE] * 3)
        measurer = TvmMeasurer(Tools(Settings(tracker="three:1"), builders, runner))
        found = measurer.measure_in_passes(PROGRAM, TARGET, workplace.inputs[:1], JobOptions(), 3)
        names = [each.endpoint.name for each in found if each.endpoint is not None]
        assert sorted(names) == ["odd-0", "odd-1", "odd-2"]

    @pytest.mark.parametrize("classes", [("c", "c"), ("c", "c", "d")])
    def test_two_devices_or_unlike_ones_overrule_nobody(
        self, measurer: TvmMeasurer, workplace: Workplace, monkeypatch: pytest.MonkeyPatch, classes: list[str]
    ) -> None:
        fleet = [replace(DEVICE, endpoint=replace(DEVICE.endpoint, host_class=each)) for each in classes]
        monkeypatch.setattr(Fleet, "devices", lambda *_: fleet)
        found = measurer.measure_in_passes(PROGRAM, TARGET, workplace.inputs, JobOptions(), 3)
        assert {each.endpoint.name for each in found if each.endpoint is not None} == {"odd"}

    def test_a_body_that_a_round_refuses_may_win_a_finish(self, measurer: TvmMeasurer) -> None:
        large = [MeasureInput(0, Candidate("sketch", (9,)), SKETCH)]
        (refused,) = measurer.measure(PROGRAM, TARGET, large, JobOptions())
        (compared,) = measurer.measure_in_passes(PROGRAM, TARGET, large, JobOptions(), 1)
        assert (refused.trial.outcome, compared.trial.outcome) == (Outcome.BUILD_ERROR, Outcome.OK)
        assert refused.trial.error == "too large"
