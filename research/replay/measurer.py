"""A measurer that looks up results in a recording, without a compiler, a device or TVM."""

from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from mallorn.core.errors import InvalidRequest
from mallorn.core.job_options import JobOptions
from mallorn.core.outcomes import Outcome
from mallorn.core.targets import Target
from mallorn.core.values.trial import Trial
from mallorn.research.replay.recorded_trials import REPLAY, load_recording
from mallorn.workers.measure.measurer_interface import (
    MeasureInput,
    Measurer,
    MeasureResult,
    Need,
    Program,
    Tools,
    VirtualDevice,
)

NOT_RECORDED: Final = "the recording does not hold this candidate of the task"
OLD_FAILURE: Final = "the candidate failed when it was recorded"
RECORD: Final = "mallorn record MODEL.onnx   (the same model, with fewer --candidates)"
STEPS: Final = {
    Need.CHECK: "on a machine of its kind: mallorn compile MODEL --schedules DIR -o model.so --check",
    Need.TIME: "mallorn bench MODEL --schedules DIR",
}


class ReplayMeasurer(Measurer):
    """Returns results that `mallorn record` stored, also failures, instead of measuring.

    Other candidates get the outcome `not_recorded`. If a recording has several measuring
    contexts, the one with most tasks is used.
    """

    virtual_device = REPLAY

    def __init__(self, recordings: str, room: Path) -> None:
        """Take the setting `recordings` and a folder for the child that reads files."""
        self._recordings = recordings
        self._room = room

    @classmethod
    def from_tools(cls, tools: Tools) -> Self:
        return cls(tools.settings.recordings, tools.room)

    def measure(
        self,
        program: Program,
        target: Target,
        inputs: Sequence[MeasureInput],
        options: JobOptions,
        best_us: float | None = None,
    ) -> Generator[MeasureResult, None, None]:
        """Yield the recorded result of each candidate in `inputs`, in their order."""
        recorded = load_recording(options, target, self._recordings, self._room)
        trials = recorded.trials(program.key)
        for entry in inputs:
            trial = trials.get(entry.candidate)
            if trial is None:
                replayed = Trial(entry.candidate, Outcome.NOT_RECORDED, error=NOT_RECORDED)
            else:
                error = (trial.error or OLD_FAILURE) if trial.outcome.failed else ""
                run_us = trial.run_us
                if trial.latency_us is not None and len(run_us) <= 1:
                    run_us = (trial.latency_us,)  # a recording stores single runs as float32 only
                replayed = Trial(
                    entry.candidate, trial.outcome, run_us=run_us, error=error, build_ms=trial.build_ms
                )
            yield MeasureResult(entry.slot, replayed, recorded.endpoint)

    def measure_in_passes(
        self,
        program: Program,
        target: Target,
        inputs: Sequence[MeasureInput],
        options: JobOptions,
        passes: int,
    ) -> list[MeasureResult]:
        """Return one result per candidate: `passes` repeats would all be equal."""
        return list(self.measure(program, target, inputs, options))

    def virtual_device_for(
        self, tasks: Mapping[str, str], target: Target, options: JobOptions
    ) -> VirtualDevice:
        recorded = load_recording(options, target, self._recordings, self._room)
        names = [name for key, name in tasks.items() if not recorded.trials(key)]
        if not names:
            return VirtualDevice(recorded.endpoint)
        if len(names) == len(tasks):
            raise InvalidRequest(f"the recording {options.recording} holds no task of this job", hint=RECORD)
        warning = f"{len(names)} of {len(tasks)} tasks are not in the recording: {', '.join(names)}"
        return VirtualDevice(recorded.endpoint, warning, RECORD)

    def require(self, need: Need) -> bool:
        raise InvalidRequest("a replay has no device on which the model could run", hint=STEPS[need])
