"""The conformance kit of measurers."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from mallorn.core.errors import MallornError
from mallorn.core.job_options import EvaluatorOptions, JobOptions
from mallorn.core.outcomes import Outcome
from mallorn.core.targets import Target
from mallorn.workers.device.device_class import Endpoint
from mallorn.workers.measure.measurer_interface import MeasureInput, Measurer, MeasureResult, Need, Program

OPTIONS = JobOptions(
    build_timeout_sec=120, run_timeout_sec=60, evaluator=EvaluatorOptions(number=1, repeat=2, min_repeat_ms=1)
)
PASSES = 2


@dataclass(frozen=True)
class Workplace:
    """Something to measure: all inputs but the last are good candidates, the last fails."""

    program: Program
    target: Target
    inputs: Sequence[MeasureInput]
    options: JobOptions = field(default=OPTIONS)

    @property
    def bad(self) -> int:
        return self.inputs[-1].slot

    @property
    def tasks(self) -> Mapping[str, str]:
        return {self.program.key: "a task"}


class MeasurerTestCase:
    """Give `measurer` and `workplace`."""

    @pytest.fixture
    def measurer(self) -> Measurer:
        raise NotImplementedError

    @pytest.fixture
    def workplace(self) -> Workplace:
        raise NotImplementedError

    @staticmethod
    def measured(measurer: Measurer, at: Workplace) -> list[MeasureResult]:
        """What became of each slot: one that is told once more turned out to be a bound."""
        told: dict[int, MeasureResult] = {}
        for result in measurer.measure(at.program, at.target, at.inputs, at.options):
            assert result.slot not in told or result.trial.is_bound
            told[result.slot] = result
        return list(told.values())

    @staticmethod
    def compared(measurer: Measurer, at: Workplace) -> list[MeasureResult]:
        return measurer.measure_in_passes(at.program, at.target, at.inputs, at.options, PASSES)

    @staticmethod
    def assert_whole(results: Sequence[MeasureResult]) -> None:
        """Run times and a device belong to success, and a text to failure."""
        for result in results:
            trial = result.trial
            assert (trial.outcome is Outcome.OK) == bool(trial.run_us) == (not trial.error)
            assert all(value > 0 for value in trial.run_us)
            if trial.outcome is Outcome.OK:
                assert result.endpoint is not None
                assert result.endpoint.threads > 0

    def test_every_slot_gets_exactly_one_result_and_a_bad_candidate_costs_its_own(
        self, measurer: Measurer, workplace: Workplace
    ) -> None:
        results = self.measured(measurer, workplace)
        assert sorted(result.slot for result in results) == sorted(each.slot for each in workplace.inputs)
        candidates = {each.slot: each.candidate for each in workplace.inputs}
        assert all(result.trial.candidate == candidates[result.slot] for result in results)
        self.assert_whole(results)
        failed = {result.slot: result.trial.error for result in results if result.trial.outcome.failed}
        assert failed.keys() == {workplace.bad}, failed

    def test_closing_early_leaves_it_usable(self, measurer: Measurer, workplace: Workplace) -> None:
        at = workplace
        stream = measurer.measure(at.program, at.target, at.inputs, at.options)
        next(stream)
        stream.close()
        again = list(measurer.measure(at.program, at.target, at.inputs[:1], at.options))
        assert [result.trial.outcome for result in again] == [Outcome.OK]

    def test_nothing_to_measure_is_no_result(self, measurer: Measurer, workplace: Workplace) -> None:
        at = workplace
        assert list(measurer.measure(at.program, at.target, [], at.options)) == []
        assert measurer.measure_in_passes(at.program, at.target, [], at.options, PASSES) == []

    def test_a_comparison_tells_of_every_slot_and_of_none_more_often_than_asked(
        self, measurer: Measurer, workplace: Workplace
    ) -> None:
        results = self.compared(measurer, workplace)
        told = Counter(result.slot for result in results)
        assert told.keys() == {each.slot for each in workplace.inputs}
        assert max(told.values()) <= PASSES
        assert {result.slot for result in results if result.trial.outcome.failed} == {workplace.bad}
        self.assert_whole(results)

    def test_a_virtual_device_is_where_all_was_measured(
        self, measurer: Measurer, workplace: Workplace
    ) -> None:
        at = workplace
        virtual_device = measurer.virtual_device_for(at.tasks, at.target, at.options)
        assert bool(measurer.virtual_device) == (virtual_device is not None)
        if virtual_device is not None:
            assert virtual_device.endpoint.host_id == measurer.virtual_device
            found = [*self.measured(measurer, at), *self.compared(measurer, at)]
            assert {_place(result.endpoint) for result in found} == {_place(virtual_device.endpoint)}

    @pytest.mark.parametrize("need", list(Need))
    def test_a_need_is_served_or_refused_with_the_next_step(self, measurer: Measurer, need: Need) -> None:
        try:
            told = "" if measurer.require(need) else "no reason"
        except MallornError as error:
            told = error.message and error.hint and "a reason and a hint"
        assert told in ("", "a reason and a hint")


def _place(endpoint: Endpoint | None) -> tuple[str, str, int] | None:
    """What of an endpoint makes a measuring context."""
    return None if endpoint is None else (endpoint.host_class, endpoint.tvm_version, endpoint.threads)
