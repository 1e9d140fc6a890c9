"""What the database of a stack tells while the stack is being killed."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from sqlalchemy import select

from mallorn.core.states import JobState, MeasurementKind, WorkKind
from mallorn.core.values.dataset import Record
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.measurements import Records
from mallorn.db.session import Database
from mallorn.db.tables import LeaseRow, Measurement
from mallorn.stack.data_directory import DataDir

PAGE = 500
SIMULATED = "simulated"  # how the names of made-up devices begin
ENDED = (JobState.DONE, JobState.FAILED, JobState.CANCELLED)
IS_TRIAL = Measurement.kind == MeasurementKind.TRIAL
Work = tuple[str, str]  # kind and subject


@dataclass
class History:
    """Looks again and again; what it saw once must be there for good."""

    data: DataDir
    database_url: str
    jobs: dict[str, int]  # trials that each asked for
    recovered_sec: list[float] = field(default_factory=list)
    most_rounds: int = 0  # that workers held at a time
    _seen: set[int] = field(default_factory=set)
    _bereaved: dict[Work, tuple[int, float]] = field(default_factory=dict)  # attempt, and since when

    def __post_init__(self) -> None:
        self._database = Database(self.database_url)

    def close(self) -> None:
        self._database.dispose()

    def struck(self, pids: Sequence[int]) -> None:
        """These processes were killed now: rounds that they held wait for another worker."""
        for row in self._held():
            if row.holder is not None and any(f"-{pid}-" in row.holder for pid in pids):
                self._bereaved.setdefault((row.kind, row.subject), (row.attempt, time.monotonic()))

    def look(self) -> None:
        """Keep what is committed by now, and see which rounds of the dead run again."""
        with self._database.session() as session:
            self._seen |= set(session.scalars(select(Measurement.id).where(IS_TRIAL)))
        rows = self._held()
        self.most_rounds = max(self.most_rounds, sum(row.until is not None for row in rows))
        for row in rows:
            attempt, since_sec = self._bereaved.get((row.kind, row.subject), (row.attempt, 0.0))
            if row.attempt > attempt:
                self.recovered_sec.append(round(time.monotonic() - since_sec, 1))
                del self._bereaved[row.kind, row.subject]

    def states(self) -> dict[str, tuple[JobState, str]]:
        """State of every job, and why it ended."""
        with self._database.session() as session:
            rows = [Jobs(session).get(job_id, None) for job_id in self.jobs]
            return {row.id: (JobState(row.state), row.ended_because) for row in rows}

    def all_ended(self) -> bool:
        return all(state in ENDED for state, _reason in self.states().values())

    def trials(self) -> list[Record]:
        """All trials that are committed."""
        found: list[Record] = []
        cursor = None
        with self._database.session() as session:
            while True:
                page = Records(session).page(None, limit=PAGE, cursor=cursor)
                found += [record for record in page.items if record.kind == MeasurementKind.TRIAL]
                if (cursor := page.cursor) is None:
                    return found

    def lost(self) -> int:
        """Trials that were committed once and are gone, and those that a job which is done does not have."""
        trials = self.trials()
        of_job = Counter(record.job_id for record in trials)
        done = [job for job, (state, _reason) in self.states().items() if state is JobState.DONE]
        gone = self._seen - {record.id for record in trials}
        return len(gone) + sum(max(0, self.jobs[job] - of_job[job]) for job in done)

    def doubled(self) -> int:
        """Trials above a job's budget, candidates that are stored twice, and those that ran once more after
        they were committed."""
        trials = self.trials()
        of_job = Counter(record.job_id for record in trials)
        above = sum(max(0, of_job[job] - asked) for job, asked in self.jobs.items())
        well = [record for record in trials if record.bound_us is None]  # a bound may be taken again
        times = Counter((record.context_id, log_key(record)) for record in well)
        return above + sum(times.values()) - len(times) + self._ran_again(well)

    def _ran_again(self, trials: Sequence[Record]) -> int:
        log = self.data.logs / "executions.log"
        real = [record for record in trials if not (record.device or "").startswith(SIMULATED)]
        committed = {log_key(record): record.created_at for record in real}
        lines = [line.split("\t") for line in log.read_text().splitlines()] if log.exists() else []
        return sum(float(line[0]) > committed.get(line[1], float("inf")) for line in lines)

    def _held(self) -> list[LeaseRow]:
        with self._database.session() as session:
            return list(session.scalars(select(LeaseRow).where(LeaseRow.kind == WorkKind.ROUND)))


def log_key(record: Record) -> str:
    """The name under which the device's log knows a trial."""
    candidate = f"{record.sketch}:{','.join(map(str, record.decisions))}"
    return f"{record.workload[:16]}/{sha256(candidate.encode()).hexdigest()[:16]}"
