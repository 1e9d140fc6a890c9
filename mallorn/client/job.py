"""Handle of one of a coordinator's jobs, for Python programs."""

import io
import math
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, Self

from mallorn.client.dataframes import frame, history_frame
from mallorn.client.http_connection import Connection, Json, LoggedEvent, sha256_of
from mallorn.core.errors import InvalidRequest, JobFailed, TimedOut, Unavailable
from mallorn.core.outcomes import Outcome
from mallorn.core.states import Cause, JobState
from mallorn.core.values.dataset import Record
from mallorn.core.values.decision_log import LoggedRound, RoundStatus
from mallorn.core.values.event import BenchedEvent
from mallorn.core.values.finish_report import FinishReport, StoredLibrary
from mallorn.core.values.job import JobProgress, JobStatus, TaskStatus
from mallorn.core.values.manifest import LIBRARY, MANIFEST, read_manifest
from mallorn.core.values.verdict import Verdict
from mallorn.report.notebook_card import card, in_notebook
from mallorn.results.best_so_far_curve import curve
from mallorn.results.decision_summary import add_total_latencies

if TYPE_CHECKING:
    import pandas

    from mallorn.client.torch_module import TunedModule

LOOK_SEC: Final = 1.0  # least seconds between two refreshes, however many events arrive
ROUNDS_A_PAGE: Final = 500
RECORDS_A_PAGE: Final = 500
UPDATE_SEC: Final = 2.0  # pause between two updates of a notebook's card
Progress = Callable[[JobStatus], None]


class Job:
    """A submitted job. `status` is its last known state; `refresh` fetches the current one.

    `body` is the same state as JSON, including fields that only a newer coordinator knows.
    """

    def __init__(self, connection: Connection, body: Json) -> None:
        self._connection = connection
        self._update_status(body)

    def _update_status(self, body: Json) -> JobStatus:
        self.body = body
        self.status = self._connection.parse_as(JobStatus, body)
        return self.status

    def __repr__(self) -> str:
        state, verdict = self.status.state, self.status.verdict
        return f"<Job {self.id} {state}{f': {verdict}' if verdict and state.is_final else ''}>"

    @property
    def id(self) -> str:
        return self.status.id

    @property
    def page(self) -> str:
        """URL of the job's page in the dashboard."""
        return f"{self._connection.url}/#/jobs/{self.id}"

    @property
    def verdict(self) -> Verdict | None:
        """Quality of the result and the next command, from the last known status."""
        return self.status.verdict

    @property
    def state(self) -> JobState:
        """The job's current state, fetched from the coordinator."""
        return self.refresh().state

    def refresh(self) -> JobStatus:
        """Fetch the job from the coordinator and return its status."""
        return self._update_status(self._connection.get(f"/jobs/{self.id}"))

    def progress(self) -> JobProgress:
        """Fetch the job and return its trials, failures by outcome and estimated latency."""
        return self.refresh().progress

    def tasks(self) -> list[TaskStatus]:
        """Return one row per task, as in MetaSchedule's table."""
        return self._connection.values(TaskStatus, f"/jobs/{self.id}/tasks")

    def rounds(
        self, task: int | None = None, order: str = "newest", page_size: int = ROUNDS_A_PAGE
    ) -> Iterator[RoundStatus]:
        """Iterate over the rounds of one task or of all; `order` is `newest` or `oldest`."""
        filters = {"task": task, "order": order, "limit": page_size}
        return self._connection.iterate_values(RoundStatus, f"/jobs/{self.id}/rounds", **filters)

    def explain(self) -> list[LoggedRound]:
        """Return all rounds, oldest first, with the job's latency before and after each."""
        return add_total_latencies(list(self.rounds(order="oldest")), self.tasks())

    def records(self, outcome: Outcome | None = None) -> Iterator[Record]:
        """Iterate over the job's measurements with this outcome, or all; newest first."""
        filters = {"job": self.id, "outcome": outcome}
        return self._connection.iterate_values(Record, "/records", **filters, limit=RECORDS_A_PAGE)

    def records_frame(self, outcome: Outcome | None = None) -> "pandas.DataFrame":
        """Return the result of `records` as a DataFrame; this needs pandas."""
        return frame(Record, self.records(outcome))

    def history(self) -> "pandas.DataFrame":
        """Return a DataFrame of total latency after each round; this needs pandas."""
        rounds = list(self.rounds())
        return history_frame(curve(rounds, self.tasks(), self.status.created_at), rounds)

    def _repr_html_(self) -> str:
        """Return the job's current state and curve as HTML, for notebooks."""
        try:
            return card(self.refresh(), self.tasks(), list(self.rounds()))
        except Unavailable as error:
            return card(self.status, [], [], f"last known: {error.message}")

    def watch(self) -> Self:
        """Show the job below a notebook cell and return it once it ended or is stuck.

        Interrupting the cell does not stop the job. Raises InvalidRequest outside a
        notebook.
        """
        if not in_notebook():
            raise InvalidRequest("the job can be shown only in a notebook", hint="job.wait()")
        from IPython.display import HTML, display

        handle = display(HTML(self._repr_html_()), display_id=True)
        while not (self.is_stuck or self.status.state.is_final):
            time.sleep(UPDATE_SEC)
            handle.update(HTML(self._repr_html_()))
        return self

    def wait(self, timeout_sec: float | None = None, progress: Progress | None = None) -> Self:
        """Wait until the job is done and return it; call `progress` with each new status.

        Reconnects if the coordinator restarts. Raises TimedOut, Unavailable if it stays
        away, and JobFailed if the job fails, is cancelled or is stuck.
        """
        report = progress or (lambda _: None)
        deadline_sec = math.inf if timeout_sec is None else time.monotonic() + timeout_sec
        looked_sec = -math.inf
        try:
            for _ in self._events(deadline_sec=deadline_sec):
                if time.monotonic() - looked_sec < LOOK_SEC:
                    continue
                try:
                    self.refresh()
                except Unavailable:  # the event stream raises it after more retries
                    continue
                looked_sec = time.monotonic()
                report(self.status)
                if self.is_stuck or self.status.state.is_final:
                    break
            else:
                report(self.status)
        except TimeoutError:
            message = f"job {self.id} is still {self.status.state} after {timeout_sec} s"
            raise TimedOut(message, hint=f"mallorn watch {self.id}") from None
        self.raise_for_state()
        return self

    @property
    def is_stuck(self) -> bool:
        """Return whether the service paused the job, so that only `resume` continues it."""
        return self.status.state is JobState.PAUSED and self.status.cause is not Cause.OWNER

    def raise_for_state(self) -> None:
        """Raise JobFailed if the last known state is failed, cancelled or stuck."""
        state = self.status.state
        if self.is_stuck or state in (JobState.FAILED, JobState.CANCELLED):
            message = f"job {self.id} {state}: {self.status.explanation or 'no reason was recorded'}"
            raise JobFailed(message, hint=self.status.hint or f"mallorn show {self.id}")

    def events(self, after: int = 0) -> Iterator[LoggedEvent]:
        """Iterate over events after id `after` until the job ends; reconnect if needed."""
        return (event for event in self._events(after) if event is not None)

    def _events(self, after_id: int = 0, deadline_sec: float = math.inf) -> Iterator[LoggedEvent | None]:
        return self._connection.events(
            f"/jobs/{self.id}/events", lambda: self.state.is_final, after_id, deadline_sec
        )

    def cancel(self) -> JobStatus:
        return self._act("cancel")

    def pause(self) -> JobStatus:
        return self._act("pause")

    def resume(self, trials: int = 0, *, auto: bool = False) -> JobStatus:
        """Continue a job with `trials` more trials; nothing is measured again.

        With `auto` it goes on as long as trials are worth their time, whatever the budget.
        """
        return self._act("resume", {"trials": trials, "auto": auto})

    def bench(self, timeout_sec: float | None = None) -> FinishReport:
        """Time the done job's exported schedules again where it measured; return the latencies.

        Raises Conflict if the job is not done or has no export, and what `wait` raises.
        """
        self._act("bench")
        events = (event.parsed_event for event in self.wait(timeout_sec).events())
        return [event.report for event in events if isinstance(event, BenchedEvent)][-1]

    def change_labels(self, changes: Mapping[str, str | None]) -> JobStatus:
        """Set labels, and remove those whose new value is None; the others stay."""
        return self._update_status(self._connection.patch(f"/jobs/{self.id}", {"labels": dict(changes)}))

    def archive(self) -> JobStatus:
        """Hide an ended job from the list of jobs; all its data is kept."""
        return self._act("archive")

    def unarchive(self) -> JobStatus:
        """Show an archived job in the list of jobs again."""
        return self._act("unarchive")

    def delete(self) -> None:
        """Delete an ended job with its event log and exports; keep its measurements."""
        self._connection.delete(f"/jobs/{self.id}")

    def delete_export(self) -> JobStatus:
        """Delete the exported files of an ended job; the job itself is kept."""
        return self._update_status(self._connection.delete(f"/jobs/{self.id}/export"))

    def schedules(self, directory: str | Path) -> Path:
        """Download schedules for TVM's JSONDatabase. Raises InvalidRequest if unwritable."""
        with self._connection.stream(f"/jobs/{self.id}/schedules") as response:
            content = response.read()
        try:
            unzip(content, Path(directory))
        except OSError as error:
            message = f"cannot write the schedules to {directory}: {error.strerror}"
            raise InvalidRequest(message, hint=f"mallorn schedules {self.id} --out OTHER_DIR") from None
        return Path(directory)

    def library(self, path: str | Path) -> Path:
        """Download the compiled model, a shared library, and check its digest.

        Raises NotFound with the reason if the job stored none, InvalidRequest if the file
        cannot be written.
        """
        file = Path(path)
        try:
            file.absolute().parent.mkdir(parents=True, exist_ok=True)
            self._connection.download(f"/jobs/{self.id}/library", file)
        except OSError as error:
            message = f"cannot write the library to {file}: {error.strerror}"
            raise InvalidRequest(message, hint=f"mallorn fetch {self.id} --library --out OTHER_DIR") from None
        return file

    def module(self) -> "TunedModule":
        """Download the library; return a `torch.nn.Module` that calls it on this machine.

        Raises what `library` raises, MissingPackage without torch or mallorn_runtime, and
        LibraryRefused of mallorn_runtime if this machine cannot run the library.
        """
        from mallorn.client.torch_module import TunedModule

        with TemporaryDirectory(prefix="mallorn-") as folder:  # a library that is loaded needs no file
            return TunedModule(self.library(Path(folder, LIBRARY)))

    def fetch(self, directory: str | Path) -> Path:
        """Download the schedules and, if the job stored one, the library `model.so`.

        A library that an earlier download left there is removed if these schedules have
        none. Raises what `schedules` and `library` raise.
        """
        root = Path(directory)
        old_library = _library_of(root)
        self.schedules(root)
        file = root / LIBRARY
        if _library_of(root) is not None:
            self.library(file)
        elif old_library is not None and file.is_file() and sha256_of(file) == old_library.digest:
            file.unlink()
        return root

    def _act(self, verb: str, body: Json | None = None) -> JobStatus:
        return self._update_status(self._connection.post(f"/jobs/{self.id}/{verb}", body))


def _library_of(directory: Path) -> StoredLibrary | None:
    """Return what a directory's manifest says of its library; None without a valid one."""
    try:
        return read_manifest(directory / MANIFEST).library
    except (OSError, InvalidRequest):
        return None


def unzip(content: bytes, directory: Path) -> None:
    """Unpack a zip archive; replace existing files only once all of it was extracted.

    Raises Unavailable if it is no zip, InvalidRequest if a path leads out of the directory.
    """
    root = directory.resolve()
    try:
        archive = zipfile.ZipFile(io.BytesIO(content))
    except zipfile.BadZipFile:
        raise Unavailable("the answer is not a zip archive", hint="check --url or MALLORN_URL") from None
    with archive:
        for name in archive.namelist():
            if not (root / name).resolve().is_relative_to(root):
                raise InvalidRequest(f"the archive of schedules names a file outside its directory: {name!r}")
        root.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".new-", dir=root) as fresh:
            archive.extractall(fresh)
            for name in archive.namelist():
                if (file := Path(fresh, name)).is_file():
                    (root / name).parent.mkdir(parents=True, exist_ok=True)
                    file.replace(root / name)
