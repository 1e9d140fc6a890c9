"""Answers a job's candidates from a recording: no compiler, no device, no TVM in the process."""

from collections.abc import Generator, Mapping, Sequence
from typing import Final, Self

from mallorn.core.errors import InvalidRequest
from mallorn.core.options import JobOptions
from mallorn.core.outcomes import Outcome
from mallorn.core.targets import Target
from mallorn.core.values.trial import Trial
from research.replay.holdings import holdings
from workers.device.endpoint import Endpoint
from workers.measure.base import Measurer, Need, Program, Slot, SlotTrial, StandIn, Tools

NOT_RECORDED: Final = "the recording has no such candidate of this task"
OLD_FAILURE: Final = "it failed when it was recorded"
RECORD: Final = "mallorn record MODEL.onnx   (the same model, with fewer --candidates)"
STEPS: Final = {
    Need.CHECK: "on a machine of its kind: mallorn compile MODEL --schedules DIR -o model.so --check",
    Need.TIME: "mallorn bench MODEL --schedules DIR",
}


class ReplayMeasurer(Measurer):
    """Says again what `mallorn record` wrote down, failures too; what it lacks is `not_recorded`.

    Of a workload that was recorded in several measuring contexts, that of most tasks is heard.
    """

    @classmethod
    def from_tools(cls, tools: Tools) -> Self:
        return cls()

    def measure(
        self,
        program: Program,
        target: Target,
        slots: Sequence[Slot],
        options: JobOptions,
        best_us: float | None = None,
    ) -> Generator[SlotTrial, None, None]:
        """Answer every slot, in order."""
        held = holdings(options.recording, target)
        known = held.trials(program.key)
        for slot in slots:
            yield _result(slot, known.get(slot.candidate), held.endpoint)

    def compare(
        self, program: Program, target: Target, slots: Sequence[Slot], options: JobOptions, passes: int
    ) -> list[SlotTrial]:
        """Once, whatever is asked for: said three times, a time would look surer than it is."""
        return list(self.measure(program, target, slots, options))

    def stand_in(self, tasks: Mapping[str, str], target: Target, options: JobOptions) -> StandIn:
        held = holdings(options.recording, target)
        lacking = [name for key, name in tasks.items() if not held.trials(key)]
        if lacking and len(lacking) == len(tasks):
            raise InvalidRequest(f"{options.recording} holds no task of this job", hint=RECORD)
        told = f"{len(lacking)} of {len(tasks)} tasks are not in the recording: {', '.join(lacking)}"
        return StandIn(held.endpoint, told, RECORD) if lacking else StandIn(held.endpoint)

    def require(self, need: Need) -> bool:
        raise InvalidRequest("a replay has no device to run anything on", hint=STEPS[need])


def _result(slot: Slot, trial: Trial | None, endpoint: Endpoint) -> SlotTrial:
    if trial is None:
        return SlotTrial(slot.slot, Trial(slot.candidate, Outcome.NOT_RECORDED, error=NOT_RECORDED), endpoint)
    words = (trial.error or OLD_FAILURE) if trial.outcome.failed else ""
    said = Trial(slot.candidate, trial.outcome, run_us=_times(trial), error=words, build_ms=trial.build_ms)
    return SlotTrial(slot.slot, said, endpoint)


def _times(trial: Trial) -> tuple[float, ...]:
    """A single time as exactly as it is known: the file rounds those of repeats."""
    return trial.run_us if trial.latency_us is None or len(trial.run_us) > 1 else (trial.latency_us,)
