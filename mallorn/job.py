"""A handle on one job of a coordinator."""

import io
import math
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, Self

from mallorn.core.errors import InvalidRequest, MallornError, Unavailable
from mallorn.core.outcomes import Outcome
from mallorn.core.states import PAUSED_BY_OWNER, Cause, JobState
from mallorn.core.values.dataset import Record
from mallorn.core.values.decision_log import LoggedRound, RoundStatus
from mallorn.core.values.job import JobProgress, JobStatus, TaskStatus
from mallorn.core.values.verdict import Verdict
from mallorn.dataframes import frame, history_frame
from mallorn.http import Connection, Json
from mallorn.report.notebook_card import card, watch
from mallorn.results.best_so_far_curve import curve
from mallorn.results.decision_summary import with_totals
from mallorn.server_sent_events import LoggedEvent, listen

if TYPE_CHECKING:
    import pandas

LOOK_SEC: Final = 1.0  # events that come faster are looked at together
ROUNDS_A_PAGE: Final = 500
RECORDS_A_PAGE: Final = 500


Progress = Callable[[JobStatus], None]


class JobFailed(MallornError):
    """The job ended without a result."""


class Job:
    """One submitted job. `status` is what was last known of it; `refresh` asks again.

    `body` is the same as JSON, with whatever a newer coordinator may say besides.
    """

    def __init__(self, connection: Connection, body: Json) -> None:
        self._connection = connection
        self._take(body)

    def _take(self, body: Json) -> JobStatus:
        self.body = body
        self.status = self._connection.read(JobStatus, body)
        return self.status

    def __repr__(self) -> str:
        state, verdict = self.status.state, self.status.verdict
        return f"<Job {self.id} {state}{f': {verdict}' if verdict and state.final else ''}>"

    @property
    def id(self) -> str:
        return self.status.id

    @property
    def page(self) -> str:
        """Where a browser finds it."""
        return f"{self._connection.url}/#/jobs/{self.id}"

    @property
    def verdict(self) -> Verdict | None:
        """How good its result is and what to do next, as last known."""
        return self.status.verdict

    @property
    def state(self) -> JobState:
        """The state now."""
        return self.refresh().state

    def refresh(self) -> JobStatus:
        """Ask the coordinator and return the whole job."""
        return self._take(self._connection.get(f"/jobs/{self.id}"))

    def progress(self) -> JobProgress:
        """Trials spent, failures by outcome and the best latency so far, now."""
        return self.refresh().progress

    def tasks(self) -> list[TaskStatus]:
        """MetaSchedule's table: one row a task."""
        return self._connection.values(TaskStatus, f"/jobs/{self.id}/tasks")

    def rounds(
        self, task: int | None = None, order: str = "newest", page_size: int = ROUNDS_A_PAGE
    ) -> Iterator[RoundStatus]:
        """What was planned, why, and what became of it, newest (or `oldest`) first; of one task or of all."""
        wanted = {"task": task, "order": order, "limit": page_size}
        return self._connection.pages(RoundStatus, f"/jobs/{self.id}/rounds", **wanted)

    def explain(self) -> list[LoggedRound]:
        """The decision log, oldest first: every round with the job's weighted total before and after it."""
        rounds = list(self.rounds(order="oldest"))
        return with_totals(rounds, self.tasks())

    def measurements(self, outcome: Outcome | None = None) -> Iterator[Record]:
        """What happened to every candidate (that ended so), newest first, fetched page by page."""
        wanted = {"job": self.id, "outcome": outcome}
        return self._connection.pages(Record, "/records", **wanted, limit=RECORDS_A_PAGE)

    def records(self, outcome: Outcome | None = None) -> "pandas.DataFrame":
        """The same as a DataFrame. Raises MissingPackage where there is no pandas."""
        return frame(Record, self.measurements(outcome))

    def history(self) -> "pandas.DataFrame":
        """The job's way down: its weighted total after every round that ended, as a DataFrame."""
        rounds = list(self.rounds())
        points = curve(rounds, self.tasks(), self.status.created_at)
        return history_frame(points, rounds)

    def _repr_html_(self) -> str:
        """How the job stands now, for notebooks."""
        try:
            return card(self.refresh(), self.tasks(), list(self.rounds()))
        except Unavailable as error:
            return card(self.status, [], [], f"last known: {error.message}")

    def watch(self) -> Self:
        """Show the job below a notebook's cell and renew it in place until it has ended; the job.

        Interrupting the cell ends the watching, not the job. Raises InvalidRequest outside of a notebook.
        """
        watch(self)
        return self

    def wait(self, timeout_sec: float | None = None, progress: Progress | None = None) -> Self:
        """The job, once it is done; `progress` is called with how it stands whenever there may be news.

        Coordinators may restart meanwhile. Raises JobFailed if it ends otherwise or is stuck, TimeoutError.
        """
        try:
            for status in self._changes(math.inf if timeout_sec is None else time.monotonic() + timeout_sec):
                if progress is not None:
                    progress(status)
        except TimeoutError:
            words = f"job {self.id} is still {self.status.state} after {timeout_sec} s"
            raise TimeoutError(words) from None
        self.raise_for_state()
        return self

    def _changes(self, deadline_sec: float) -> Iterator[JobStatus]:
        """How it stands, again whenever there may be news, until it has ended or is stuck."""
        looked_sec = -math.inf
        for _ in listen(self._connection, self._events, self._has_ended, deadline_sec=deadline_sec):
            if time.monotonic() - looked_sec < LOOK_SEC:
                continue
            with suppress(Unavailable):  # the stream will notice, and has more patience
                self.refresh()
                looked_sec = time.monotonic()
                yield self.status
                if self.stuck or self.status.state.final:
                    return
        yield self.status

    def _has_ended(self) -> bool:
        return self.state.final

    @property
    def _events(self) -> str:
        return f"/jobs/{self.id}/events"

    @property
    def stuck(self) -> bool:
        """Whether the service paused it at its last known state: it does not go on by itself."""
        # Older coordinators say it in words alone.
        by_owner = self.status.cause is Cause.OWNER or self.status.reason == PAUSED_BY_OWNER
        return self.status.state is JobState.PAUSED and not by_owner

    def raise_for_state(self) -> None:
        """Raise JobFailed if the last known state is failed or cancelled, or the service paused the job."""
        state = self.status.state
        if self.stuck or state in (JobState.FAILED, JobState.CANCELLED):
            what, _, next_step = self.status.reason.partition("\n")
            raise JobFailed(
                f"job {self.id} {state}: {what or 'no reason was recorded'}",
                hint=next_step or f"mallorn show {self.id}",
            )

    def events(self, after: int = 0) -> Iterator[LoggedEvent]:
        """Every event, from the one after `after` to the job's last, across dropped connections."""
        heard = listen(self._connection, self._events, self._has_ended, after)
        return (event for event in heard if event is not None)

    def cancel(self) -> JobStatus:
        return self._act("cancel")

    def pause(self) -> JobStatus:
        return self._act("pause")

    def resume(self, trials: int = 0, *, auto: bool = False) -> JobStatus:
        """Go on where the job stopped, with so many trials more; nothing is measured again.

        With `auto` it goes on while its trials are worth their seconds, whatever its budget was.
        """
        # Left out where it says nothing: an older coordinator does not know it.
        return self._act("resume", {"trials": trials, "auto": True} if auto else {"trials": trials})

    def archive(self) -> JobStatus:
        """Take a job that has ended out of the list; everything of it stays."""
        return self._act("archive")

    def unarchive(self) -> JobStatus:
        """Put an archived job back into the list."""
        return self._act("unarchive")

    def delete(self) -> None:
        """Delete a job that has ended, with its log and exported files; what it measured stays."""
        self._connection.delete(f"/jobs/{self.id}")

    def delete_export(self) -> JobStatus:
        """Delete the files that a job that has ended exported; the job stays."""
        return self._take(self._connection.delete(f"/jobs/{self.id}/export"))

    def schedules(self, directory: str | Path) -> Path:
        """Download the exported logs into a directory; stock TVM loads it as `JSONDatabase(work_dir=...)`."""
        with self._connection.stream(f"/jobs/{self.id}/schedules") as response:
            content = response.read()
        try:
            unzip(content, Path(directory))
        except OSError as error:
            raise InvalidRequest(
                f"cannot write the schedules to {directory}: {error.strerror}",
                hint=f"mallorn schedules {self.id} --out OTHER_DIR",
            ) from None
        return Path(directory)

    def _act(self, verb: str, body: Json | None = None) -> JobStatus:
        return self._take(self._connection.post(f"/jobs/{self.id}/{verb}", body))


def unzip(content: bytes, directory: Path) -> None:
    """Unpack an archive, unless one of its members would land outside the directory.

    What lies there is replaced once all of it has found room.
    """
    root = directory.resolve()
    try:
        archive = zipfile.ZipFile(io.BytesIO(content))
    except zipfile.BadZipFile:
        raise Unavailable("the answer is not a zip archive", hint="check --url or MALLORN_URL") from None
    with archive:
        for name in archive.namelist():
            if not (root / name).resolve().is_relative_to(root):
                raise InvalidRequest(f"the archive names a file outside its directory: {name!r}")
        root.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".new-", dir=root) as fresh:
            archive.extractall(fresh)
            for name in archive.namelist():
                if (file := Path(fresh, name)).is_file():
                    (root / name).parent.mkdir(parents=True, exist_ok=True)
                    file.replace(root / name)
