"""A measurer that looks up results in a recording, without a compiler, a device or TVM.

A child process reads the recording.
"""

# mypy: disable-error-code="empty-body"

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Self

import fsspec

from mallorn.core.errors import InvalidRequest
from mallorn.core.job_options import JobOptions
from mallorn.core.outcomes import Outcome
from mallorn.core.targets import Target
from mallorn.core.values.candidate import Candidate
from mallorn.core.values.trial import Trial
from mallorn.core.virtual_devices import recording_place
from mallorn.workers.device.device_class import Endpoint
from mallorn.workers.measure.measurer_interface import (
    MeasureInput,
    Measurer,
    MeasureResult,
    Need,
    Program,
    Tools,
    VirtualDevice,
)
from mallorn.workers.subprocesses.child_process import Child
from mallorn.workers.subprocesses.typed_method import method

REPLAY: Final = "replay"
READ_SEC: Final = 300.0
MEMORY_BYTES: Final = 8 << 30
NOT_RECORDED: Final = "the recording does not hold this candidate of the task"
OLD_FAILURE: Final = "the candidate failed when it was recorded"
RECORD: Final = "mallorn record MODEL.onnx   (the same model, with fewer --candidates)"
STEPS: Final = {
    Need.CHECK: "on a machine of its kind: mallorn compile MODEL --schedules DIR -o model.so --check",
    Need.TIME: "mallorn bench MODEL --schedules DIR",
}


@dataclass(frozen=True, slots=True)
class RecordedTrials:
    """The device of a recording, and its trials for one target, keyed by workload."""

    endpoint: Endpoint
    tasks: Mapping[str, Sequence[Trial]]

    def trials(self, workload: str) -> Mapping[Candidate, Trial]:
        """Return the recorded trials of a workload; empty if there are none."""
        return {trial.candidate: trial for trial in self.tasks.get(workload, ())}


class RecordingReader(Child):
    """Child process that reads an untrusted Parquet file."""

    MODULE = "mallorn_research.replay.recording_child"

    @method(limit_sec=READ_SEC)
    def read_target_trials(self, path: str, name: str, target: str) -> RecordedTrials:
        """Return the trials for `target` in the measuring context with most tasks.

        Raises InvalidRequest, naming the file `name`, if it is invalid or lacks the target.
        """


def load_recording(options: JobOptions, target: Target, recordings: str, room: Path | None) -> RecordedTrials:
    """Return the target's trials in the job's recording; cache them until the file changes.

    Raises InvalidRequest if it is missing, invalid or not allowed, or lacks the target.
    """
    url = recording_place(options, recordings)
    with _convert_read_errors(options.recording):
        store, path = fsspec.url_to_fs(url)
        if store.info(path)["type"] != "file":
            raise FileNotFoundError
        version = str(store.ukey(path))
    return _load_cached(url, options.recording, version, target, room)


@contextmanager
def _convert_read_errors(name: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise InvalidRequest(f"workers find no recording {name}", hint=_HINT) from None
    except (OSError, ValueError, ImportError) as error:
        cause = type(error).__name__
        raise InvalidRequest(f"workers cannot read the recording {name} ({cause})", hint=_HINT) from None


_HINT: Final = "ask the operator what MALLORN_RECORDINGS holds"


@lru_cache(maxsize=4)
def _load_cached(
    url: str,
    name: str,
    version: str,  # noqa: ARG001 - part of the cache key
    target: Target,
    room: Path | None,
) -> RecordedTrials:
    with TemporaryDirectory(prefix="recording-", dir=room) as folder:
        copy = Path(folder, "recording.parquet")
        with _convert_read_errors(name):
            store, path = fsspec.url_to_fs(url)
            store.get_file(path, str(copy))
        with RecordingReader(name="recording reader", room=Path(folder), memory_bytes=MEMORY_BYTES) as reader:
            return reader.read_target_trials(str(copy), name, target.text)


class ReplayMeasurer(Measurer):
    """Returns results that `mallorn record` stored, also failures, instead of measuring.

    Other candidates get the outcome `not_recorded`. If a recording has several measuring
    contexts, the one with most tasks is used.
    """

    virtual_device = REPLAY

    def __init__(self, recordings: str, room: Path | None) -> None:
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
