"""Commit the results of a round a few at a time, guarded by the attempt's fencing token."""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from mallorn.core.errors import Unavailable
from mallorn.core.values.disturbance import Disturbance
from mallorn.core.values.event import MeasuredEvent
from mallorn.core.values.job import JobStep
from mallorn.db.repositories.base import ERROR_CHARS
from mallorn.db.repositories.job_events_and_warnings import Events
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.leases import Token
from mallorn.db.repositories.measurements import Measurements, NewMeasurement
from mallorn.db.session import Database
from mallorn.searchers.base import Proposal
from mallorn.workers.measure.measurer_interface import MeasureInput, MeasureResult
from mallorn.workers.process.match_devices_and_builder import limits_of
from mallorn.workers.round.loaded_round import LoadedRound
from mallorn.workers.round.store_referenced_rows import store_sites, store_sketches
from mallorn.workers.subprocesses.shutdown import STOP

# A killed worker loses at most these and the running candidate.
RESULTS_PER_COMMIT: Final = 4
RETRY_SEC: Final = 1.0
log = logging.getLogger(__name__)


@dataclass(eq=False)
class Commits:
    """Commits a round's results, RESULTS_PER_COMMIT at a time. Raises LeaseLost if another attempt has it."""

    database: Database
    round_: LoadedRound
    token: Token
    inputs: Sequence[MeasureInput]
    proposals: Sequence[Proposal]

    def __post_init__(self) -> None:
        self._sketches = {each.slot: each.sketch for each in self.inputs}
        self.pending: dict[int, MeasureResult] = {}
        self._committed: set[int] = set()
        self._disturbances: dict[int, Disturbance] = {}

    def add(self, result: MeasureResult) -> None:
        self.pending[result.slot] = result
        if result.disturbance is not None:
            self._disturbances[result.slot] = result.disturbance
        if len(self.pending) >= RESULTS_PER_COMMIT:
            try:
                self.flush()
            except Unavailable as error:  # results stay pending until the next commit
                log.warning("%s results wait for the database: %s", len(self.pending), error.message)

    @property
    def disturbance(self) -> Disturbance:
        """Summary of other load on the devices while this attempt timed candidates."""
        return Disturbance.of_all(self._disturbances.values())

    def flush(self) -> None:
        """Commit pending results, the job's message and events in one transaction."""
        if not self.pending:
            return
        results = [result for slot, result in self.pending.items() if slot not in self._committed]
        repeated = {slot: r.trial.disturbed for slot, r in self.pending.items() if slot in self._committed}
        with self.database.transaction() as session:
            sketches = store_sketches(session, [self._sketches[result.slot] for result in results])
            target_id, options = self.round_.row.target_id, self.round_.options
            sites = store_sites(session, target_id, options, [result.endpoint for result in results])
            rows = []
            for result, site in zip(results, sites, strict=True):
                proposal = self.proposals[result.slot]
                trial = replace(
                    result.trial,
                    origin=proposal.origin,
                    error=result.trial.error[-ERROR_CHARS:],
                    predicted=proposal.predicted,
                )
                sketch_id, limits = sketches[trial.candidate.sketch], limits_of(options)
                row = NewMeasurement(result.slot, trial, sketch_id, site.context_id, site.device_id, limits)
                rows.append(row)
            # `new` is empty if an earlier commit succeeded but its reply was lost.
            measurements = Measurements(session)
            new = measurements.add_trials(self.round_.row.id, self.token, rows)
            measurements.mark_disturbed_slots(self.round_.row.id, repeated)
            if new:
                times = [us for result in results if (us := result.trial.time_us) is not None]
                event = MeasuredEvent(
                    round=self.round_.row.index,
                    task=self.round_.task_index,
                    name=self.round_.task_name,
                    trials=len(results),
                    failures=sum(result.trial.outcome.failed for result in results),
                    best_us=min(times, default=None),
                )
                Events(session).append(self.round_.row.job_id, event)
            # The job no longer waits.
            load = self.disturbance
            step = JobStep(disturbance=load) if load.description else None
            Jobs(session).set_step(self.round_.row.job_id, step)
        self._committed.update(self.pending)
        self.pending = {}

    def commit_all(self) -> None:
        """Commit pending results; retry until the database answers or the worker must stop.

        An expired lease does not matter unless another attempt took the round; then `flush`
        raises LeaseLost. Raises Unavailable if the worker must stop.
        """
        while True:
            try:
                return self.flush()
            except Unavailable as error:
                if STOP.requested.is_set():
                    raise
                log.warning("%s results wait for the database: %s", len(self.pending), error.message)
                time.sleep(RETRY_SEC)
