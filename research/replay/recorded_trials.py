"""Reads what a recording holds for one target, from a local file or a store."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import fsspec
from fsspec.implementations.local import LocalFileSystem

from mallorn.core.errors import InvalidRequest
from mallorn.core.stand_in_measurers import real_target
from mallorn.core.targets import Target
from mallorn.core.values.candidate import Candidate
from mallorn.core.values.manifest import MeasuredOn
from mallorn.core.values.trial import Trial
from research.replay.recorded_task import RecordedTask
from research.replay.recording_file import read_tasks
from workers.device.device_class import Endpoint

REPLAY: Final = "replay"
Trials = Mapping[Candidate, Trial]


@dataclass(frozen=True, slots=True)
class RecordedTrials:
    """The recorded trials of each workload, and the device that they ran on."""

    endpoint: Endpoint
    tasks: Mapping[str, Trials]

    def trials(self, workload: str) -> Trials:
        """The recorded trials of a workload, if any."""
        return self.tasks.get(workload, {})


def holdings(url: str, target: Target) -> RecordedTrials:
    """Read a recording and cache it until it changes. The measuring context with most tasks is used.

    Raises InvalidRequest for a file that is missing, is no recording, or is of other targets.
    """
    with _reading(url):
        store, path = fsspec.url_to_fs(url)
        return _read(url, str(store.ukey(path)), target)


@contextmanager
def _reading(url: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise InvalidRequest(f"workers find no recording at {url}", hint=f"ls -l {url}") from None
    except (OSError, ValueError, ImportError) as error:
        raise InvalidRequest(
            f"workers cannot read the recording {url}: {error}", hint=f"ls -l {url}"
        ) from None


@lru_cache(maxsize=4)
def _read(url: str, version: str, target: Target) -> RecordedTrials:  # noqa: ARG001 - another one is read anew
    store, path = fsspec.url_to_fs(url)
    if isinstance(store, LocalFileSystem):
        return _held(read_tasks(Path(path)), url, target)
    with TemporaryDirectory(prefix="mallorn-recording-") as folder:
        copy = Path(folder) / Path(path).name
        store.get_file(path, str(copy))
        return _held(read_tasks(copy), url, target)


def _held(tasks: Sequence[RecordedTask], url: str, target: Target) -> RecordedTrials:
    wanted = real_target(target)
    ours = [task for task in tasks if real_target(Target(task.target)) == wanted]
    if not ours:
        known = dict.fromkeys(real_target(Target(task.target)).text for task in tasks)
        hint = "   or   ".join(f"--target '{text}'" for text in known)
        raise InvalidRequest(f"{url} was not recorded for {wanted}", hint=hint)
    context = Counter(str(task.context) for task in ours).most_common(1)[0][0]
    same = [task for task in ours if str(task.context) == context]
    trials = {task.workload: {trial.candidate: trial for trial in task.trials} for task in same}
    on = MeasuredOn.model_validate(same[0].context)
    return RecordedTrials(
        Endpoint(f"{REPLAY}-{target.key}", REPLAY, on.host_class, on.threads, on.tvm_version), trials
    )
