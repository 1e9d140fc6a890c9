# mypy: disable-error-code="empty-body"
"""Fetch a recording, and read one target's trials from it in a child process."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import fsspec

from mallorn.core.errors import InvalidRequest
from mallorn.core.job_options import JobOptions
from mallorn.core.targets import Target
from mallorn.core.values.candidate import Candidate
from mallorn.core.values.trial import Trial
from mallorn.core.virtual_devices import recording_place
from mallorn.workers.device.device_class import Endpoint
from mallorn.workers.subprocesses.child_process import Child
from mallorn.workers.subprocesses.typed_method import method

REPLAY: Final = "replay"
READ_SEC: Final = 300.0
MEMORY_BYTES: Final = 8 << 30


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


def load_recording(options: JobOptions, target: Target, recordings: str, room: Path) -> RecordedTrials:
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
    room: Path,
) -> RecordedTrials:
    with TemporaryDirectory(prefix="recording-", dir=room) as folder:
        copy = Path(folder, "recording.parquet")
        with _convert_read_errors(name):
            store, path = fsspec.url_to_fs(url)
            store.get_file(path, str(copy))
        with RecordingReader(name="recording reader", room=Path(folder), memory_bytes=MEMORY_BYTES) as reader:
            return reader.read_target_trials(str(copy), name, target.text)
