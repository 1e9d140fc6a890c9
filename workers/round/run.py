"""Run a round: claim it, propose candidates, build and measure them, commit results every few seconds.

Commits are guarded by the fencing token of the attempt.
"""

import logging
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from typing import Final

import numpy as np
from sqlalchemy.orm import Session

from mallorn.core.errors import LeaseLost, Unavailable
from mallorn.core.host_id import host_id
from mallorn.core.job_options import KeptOptions
from mallorn.core.states import RoundState, WorkKind
from mallorn.core.targets import Target
from mallorn.core.values.decision_log import RoundStats
from mallorn.core.values.disturbance import Disturbance
from mallorn.core.values.event import MeasuredEvent, RoundClosedEvent
from mallorn.core.values.job import JobStep
from mallorn.core.values.trial import Trial
from mallorn.costmodels.metrics import pairwise_accuracy
from mallorn.db.repositories.base import ERROR_CHARS
from mallorn.db.repositories.job_events_and_warnings import Events
from mallorn.db.repositories.leases import LeaseToken
from mallorn.db.repositories.measurements import Measurements, NewMeasurement
from mallorn.db.repositories.rounds import Rounds
from mallorn.db.repositories.trials import Trials
from mallorn.db.session import Database
from mallorn.db.tables import Round
from mallorn.searchers.base import Proposal
from mallorn.workers.hardware_probe.run import ensure_machine
from mallorn.workers.host.host_lock import HostLock
from mallorn.workers.measure.measurer_interface import MeasureInput, MeasureResult
from mallorn.workers.measure.roofline_check import reject_implausible, shortest_plausible_us
from mallorn.workers.model_import.run import check_import
from mallorn.workers.process.leased_work import LeasedWork
from mallorn.workers.process.match_devices_and_builder import ensure_builder, limits_of
from mallorn.workers.process.places import COMMIT_SEC, CostMeter
from mallorn.workers.process.worker_runtime import Runtime
from mallorn.workers.round.loaded_round import LoadedRound
from mallorn.workers.round.propose import prepare_round
from mallorn.workers.round.select_cost_model import select_ranking_model
from mallorn.workers.round.store_referenced_rows import store_sites, store_sketches
from mallorn.workers.subprocesses.shutdown import STOP

# A killed worker loses at most so many results of a round, and the running candidate.
RESULTS_PER_COMMIT: Final = 16
# Python runs one thread at a time: if all rounds proposed at once, all would begin late.
PROPOSING: Final = threading.BoundedSemaphore(2)
RETRY_SEC: Final = 1.0
log = logging.getLogger(__name__)
FEWEST: Final = 4  # valid candidates that a rank needs
RESTORED: Final = "the database was restored: what was measured since then is measured again"


@dataclass(eq=False)
class Commits:
    """Commits a round's results: at most RESULTS_PER_COMMIT together, and the first result
    after `every_sec` at once. Raises LeaseLost if another attempt has the round.

    Rounds of one job commit beside each other: of the rows that they share none is locked,
    but for the job's row, which is updated only while no other transaction holds it.
    """

    database: Database
    round_: LoadedRound
    hold: LeaseToken
    inputs: Sequence[MeasureInput]
    proposals: Sequence[Proposal]
    every_sec: float = COMMIT_SEC

    def __post_init__(self) -> None:
        self._sketches = {each.slot: each.sketch for each in self.inputs}
        self.pending: dict[int, MeasureResult] = {}
        self._committed: set[int] = set()
        self._unannounced: list[MeasureResult] = []  # committed, and in no event yet
        self._disturbances: dict[int, Disturbance] = {}
        self._last_commit_sec = time.monotonic()

    def add(self, result: MeasureResult) -> None:
        self.pending[result.slot] = result
        if result.disturbance is not None:
            self._disturbances[result.slot] = result.disturbance
        is_due = time.monotonic() >= self._last_commit_sec + self.every_sec
        if is_due or len(self.pending) >= RESULTS_PER_COMMIT:
            try:
                self.flush()
            except Unavailable as error:  # results stay pending until the next commit
                log.warning("%s results wait for the database: %s", len(self.pending), error.message)

    @property
    def disturbance(self) -> Disturbance:
        """Summary of other load on the devices while this attempt timed candidates."""
        return Disturbance.of_all(self._disturbances.values())

    def flush(self, is_last: bool = False) -> None:
        """Commit pending results. The transaction also stores the event that announces them and what
        the job does now, unless another one has the job's row locked: then a later commit of the
        round stores these. The last one (`is_last`) waits for the row."""
        if not self.pending and not (is_last and self._unannounced):
            return
        results = [result for slot, result in self.pending.items() if slot not in self._committed]
        repeated = {slot: r.trial.disturbed for slot, r in self.pending.items() if slot in self._committed}
        with self.database.transaction() as session:
            measurements = Measurements(session)
            if is_last:
                measurements.lock_jobs([self.round_.row.job_id])  # before the lease, as everywhere
            # None is new if an earlier commit succeeded but its reply was lost.
            is_new = bool(measurements.add_trials(self.hold, self._rows_of(session, results)))
            measurements.mark_disturbed_slots(self.round_.row.id, repeated)
            unannounced = self._unannounced + (results if is_new else [])
            if unannounced and self._announce(session, unannounced, is_last):
                unannounced = []
        self._unannounced = unannounced
        self._committed.update(self.pending)
        self.pending = {}
        self._last_commit_sec = time.monotonic()

    def _rows_of(self, session: Session, results: Sequence[MeasureResult]) -> list[NewMeasurement]:
        # Looked up in each transaction: what an earlier one stored is gone if the database was restored.
        sketches = store_sketches(session, [self._sketches[result.slot] for result in results])
        round_, endpoints = self.round_, [result.endpoint for result in results]
        sites = store_sites(session, round_.row.target_id, round_.target, round_.options, endpoints)
        limits = limits_of(round_.options, round_.target)
        rows = []
        for result, site in zip(results, sites, strict=True):
            proposal = self.proposals[result.slot]
            trial = replace(
                result.trial,
                origin=proposal.origin,
                error=result.trial.error[-ERROR_CHARS:],
                predicted=proposal.predicted,
            )
            sketch_id = sketches[trial.candidate.sketch]
            row = NewMeasurement(result.slot, trial, sketch_id, site.context_id, site.device_id, limits)
            rows.append(row)
        return rows

    def _announce(self, session: Session, results: Sequence[MeasureResult], waits: bool) -> bool:
        """Store an event about results, and what the job does; return whether its row was free."""
        times = [us for result in results if (us := result.trial.time_us) is not None]
        event = MeasuredEvent(
            round=self.round_.row.index,
            task=self.round_.task_index,
            name=self.round_.task_name,
            trials=len(results),
            failures=sum(result.trial.outcome.failed for result in results),
            best_us=min(times, default=None),
        )
        load = self.disturbance
        step = JobStep(disturbance=load) if load.description else None
        return Events(session).append_with_step(self.round_.row.job_id, event, step, waits)

    def commit_all(self) -> None:
        """Commit pending results; retry until the database answers or the worker must stop.

        An expired lease does not matter unless another attempt took the round; then `flush`
        raises LeaseLost. Raises Unavailable if the worker must stop.
        """
        while True:
            try:
                return self.flush(is_last=True)
            except Unavailable as error:
                if STOP.requested.is_set():
                    raise
                log.warning("%s results wait for the database: %s", len(self.pending), error.message)
                time.sleep(RETRY_SEC)


def run_round(work: LeasedWork) -> Round:
    """Run a leased round to its end; return its row, as it was read at the beginning."""
    start_sec, runtime, cost = time.monotonic(), work.runtime, CostMeter()
    job = ensure_builder(runtime, work.job)
    check_import(runtime, job)
    if job.machine is None:
        ensure_machine(runtime, job.id)
    with runtime.working_on(work.description):
        with PROPOSING, HostLock().hold_shared():
            round_, (inputs, proposals) = prepare_round(runtime, work.hold)
        proposed_sec = time.monotonic()
        inputs_left = [each for each in inputs if each.slot not in round_.done_slots]
        commits = Commits(runtime.database, round_, work.hold, inputs, proposals, runtime.places.commit_sec)
        measurer = runtime.measurer(round_.options, round_.like)
        results = measurer.measure(round_.program, round_.target, inputs_left, round_.options, round_.best_us)
        least_us = shortest_plausible_us(round_.program, round_.machine)
        with closing(results):
            try:
                for result in results:
                    cost.add(result.trial)
                    if not _takes_turns_with_builds(result, round_.target):
                        runtime.adapt_width(cost, len(inputs_left))
                    work.lease.raise_if_lost()
                    commits.add(reject_implausible(result, least_us))
            finally:  # after an error, commit the results measured under the lease
                commits.commit_all()
    stats = {
        "propose_sec": round(proposed_sec - start_sec, 3),
        "measure_sec": round(time.monotonic() - proposed_sec, 3),
        "build_sec": round(cost.build_ms / 1e3, 3),
        **asdict(measurer.device_seconds),
        "candidates": len(inputs_left),
        "cost_model": round_.model_name,
        "disturbance": commits.disturbance,
    }
    close_round(runtime, round_, work.hold, RoundStats.model_validate(stats))
    return round_.row


def _takes_turns_with_builds(result: MeasureResult, target: Target) -> bool:
    """Return whether this host's processors timed a candidate, so that nothing was built."""
    endpoint = result.endpoint
    return target.runs_on_cores and endpoint is not None and endpoint.host_id == host_id()


def fix_round_inputs(session: Session, hold: LeaseToken) -> str:
    """Store, on a round's first claim, the cost model of all attempts. Return the text that
    the fleet page shows while the round runs."""
    if hold.item.kind is not WorkKind.ROUND:
        return ""
    row, job, task, workload, *_ = Rounds(session).load(int(hold.item.subject))
    if hold.attempt == 1:
        options = KeptOptions.model_validate(job.options)
        model = select_ranking_model(session, row, task.family, workload.op, options)
        Rounds(session).store_inputs(row.id, model)
    if job.private:
        return "a round of a private job"  # all users see the fleet page
    return f"round {row.index} of job {job.id}: {task.name}"


def close_round(runtime: Runtime, round_: LoadedRound, hold: LeaseToken, stats: RoundStats) -> None:
    """End a round whose candidates are all measured; store an event.

    Raises LeaseLost if another attempt has the round; Unavailable if restoring the database
    lost results.
    """
    row = round_.row
    with runtime.database.transaction() as session:
        trials = Trials(session).of_round(row.id)
        stats = stats.model_copy(update={"own_accuracy": compute_own_accuracy(trials)})
        if len(trials) < len(round_.done_slots) + stats.candidates:
            raise Unavailable(RESTORED)
        if not Rounds(session).close(hold, RoundState.DONE, stats):
            raise LeaseLost
        fields = {
            "round": row.index,
            "task": round_.task_index,
            "name": round_.task_name,
            **stats.to_stored_json(),
        }
        Events(session).append(row.job_id, RoundClosedEvent.model_validate(fields))
    log.info("a round of %s is done: %s candidates", round_.task_name, stats.candidates)


def compute_own_accuracy(of_round: Sequence[tuple[Trial, int | None]]) -> float | None:
    """Return the share of a round's pairs that its cost model ranked right; None if they are too few."""
    trials = [row for row in of_round if row[0].predicted is not None and row[0].latency_us is not None]
    if len(trials) < FEWEST:
        return None
    predicted = np.array([trial.predicted for trial, _ in trials], dtype=np.float32)
    labels = -np.log(np.array([trial.latency_us for trial, _ in trials], dtype=np.float64)).astype(np.float32)
    # Only times of one context compare; each trial with a time has one.
    groups = np.array([context_id for _, context_id in trials], dtype=np.int64)
    share = pairwise_accuracy(predicted, labels, groups)
    return None if np.isnan(share) else round(share, 4)
