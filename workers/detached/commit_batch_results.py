"""Commit a batch's results by the rules of any round, so that each counts only once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mallorn.core.errors import Conflict, Unavailable
from mallorn.core.job_options import JobOptions, KeptOptions
from mallorn.core.outcomes import Outcome
from mallorn.core.states import JobState, RoundState, WorkKind
from mallorn.core.targets import Target
from mallorn.core.values.decision_log import RoundStats
from mallorn.core.values.trial import Trial
from mallorn.db.repositories.claim_and_release_work import WorkItems
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.leases import Leases, LeaseToken, WorkItem
from mallorn.db.repositories.rounds import Rounds
from mallorn.db.repositories.targets import Targets
from mallorn.db.repositories.workloads import Sketches
from mallorn.searchers.space import Candidate
from mallorn.workers.detached.batch_record import (
    LEASE_SEC,
    BatchResults,
    CallResult,
    SentBatch,
    SentCall,
    SentRound,
    check_call_keys,
    delete_batch,
    lease_holder_name,
    load_batch,
)
from mallorn.workers.device.device_class import Endpoint, no_device_error
from mallorn.workers.finish.numeric_check import Checker, NumericCheck
from mallorn.workers.finish.run import finish_stage
from mallorn.workers.measure.measurer_interface import (
    DetachedMeasurer,
    MeasureInput,
    MeasureResult,
    Program,
    number_candidates,
)
from mallorn.workers.measure.roofline_check import reject_implausible, shortest_plausible_us
from mallorn.workers.process.lease_renewal import LeaseKeeper
from mallorn.workers.process.leased_work import LeasedWork, stage_of
from mallorn.workers.process.match_devices_and_builder import class_of_job
from mallorn.workers.process.time_slice import TimeSliceOver
from mallorn.workers.process.worker_runtime import Runtime
from mallorn.workers.round.loaded_round import load_round
from mallorn.workers.round.run import Commits, close_round
from mallorn.workers.round.store_referenced_rows import get_or_create_context
from mallorn.workers.round.train_cost_model import train
from mallorn.workers.subprocesses.errors import ChildError

DROPPED: Final = "the batch was dropped"
NOT_SENT: Final = "the batch did not hold the candidate, or its build failed"


@dataclass(frozen=True, slots=True)
class Taken:
    """Numbers of a batch's new results, and of its runs that still lack a result."""

    job_id: str
    new: int
    left: int
    refused: int = 0  # results of rounds that were cancelled meanwhile


def commit_batch_results(runtime: Runtime, results: BatchResults) -> Taken:
    """Commit a batch's results to their rounds. If the batch is for a job's last stage,
    finish the job once all results are there.

    Raises InvalidRequest if the batch is unknown or was changed, NoDevice if the job is
    bound to another class of device, Conflict if the batch lost its lease on the last stage.
    """
    batch = load_batch(runtime.settings.artifacts, results.batch)
    calls, endpoint = check_call_keys(batch, results), results.device
    runtime.name = lease_holder_name(batch.id)
    with runtime.database.transaction() as session:
        Jobs(session).lock_jobs([batch.job_id])
        job = Jobs(session).get(batch.job_id, None)
        device_class = class_of_job(session, job)
        if device_class is None:  # bind the job to the context of its first results
            options = KeptOptions.model_validate(job.options)
            target = Target(Targets(session).get(job.target_id).text)
            context = get_or_create_context(session, job.target_id, target, options, endpoint)
            Jobs(session).bind_context(batch.job_id, context.id)
        elif device_class != endpoint.device_class:
            raise no_device_error(device_class)
    new, cancelled = 0, 0
    for sent_round in batch.rounds:
        answers = {
            slot: calls[key]
            for slot in sent_round.build_ms
            if (key := f"{sent_round.round_id}-{slot}") in calls
        }
        committed = _commit_round_results(runtime, batch, sent_round, answers, endpoint) if answers else 0
        if committed is None:
            cancelled += len(answers)
        else:
            new += committed
    remaining = len(batch.keys) - len(calls)
    if batch.passes and not remaining:
        new += _finish_with_results(runtime, batch, calls, endpoint)
    if not remaining:
        with runtime.database.transaction() as session:
            Jobs(session).set_step(batch.job_id, None)
    return Taken(batch.job_id, new, remaining, cancelled)


def drop_batch(runtime: Runtime, batch_id: str) -> SentBatch:
    """Give up a batch whose results will not come: cancel its rounds, release the job's
    last stage, and delete the record. Raises InvalidRequest if there is no such batch."""
    batch = load_batch(runtime.settings.artifacts, batch_id)
    with runtime.database.transaction() as session:
        for sent_round in batch.rounds:
            item = WorkItem.for_round(sent_round.round_id)
            if (hold := _lease_of(Leases(session), item, batch)) is not None:
                Rounds(session).close(hold, RoundState.CANCELLED, error=DROPPED)
        finish = WorkItem(WorkKind.FINISH, batch.job_id)
        if batch.passes and (hold := _lease_of(Leases(session), finish, batch)) is not None:
            WorkItems(session).return_work(hold, Unavailable(DROPPED))
        Jobs(session).set_step(batch.job_id, None)
    delete_batch(runtime.settings.artifacts, batch)
    return batch


def _lease_of(leases: Leases, item: WorkItem, batch: SentBatch) -> LeaseToken | None:
    """Return the batch's lease on a round or last stage, or None if the lease was lost."""
    row = leases.get(item)
    is_held = row.holder == lease_holder_name(batch.id) and row.until is not None
    return LeaseToken(item, row.attempt, lease_holder_name(batch.id)) if is_held else None


def _commit_round_results(
    runtime: Runtime,
    batch: SentBatch,
    sent_round: SentRound,
    results: dict[int, CallResult],
    endpoint: Endpoint,
) -> int | None:
    """Commit results; close a complete round. Return the new ones; None if cancelled."""
    item, database = WorkItem.for_round(sent_round.round_id), runtime.database
    with database.transaction() as session:
        row = Rounds(session).get(sent_round.round_id)
        if row.state == RoundState.QUEUED:  # the batch's lease has expired
            Rounds(session).claim(sent_round.round_id, lease_holder_name(batch.id), LEASE_SEC)
        hold = _lease_of(Leases(session), item, batch)
        if hold is None:
            return 0 if row.state == RoundState.DONE and row.worker == lease_holder_name(batch.id) else None
        context = load_round(session, sent_round.round_id)
        sketches = Sketches(session).by_key({proposal.candidate.sketch for proposal in sent_round.proposals})
    candidates = [proposal.candidate for proposal in sent_round.proposals]
    slots = number_candidates((candidate, sketches[candidate.sketch]) for candidate in candidates)
    commits = Commits(database, context, hold, slots, sent_round.proposals)
    least_us = shortest_plausible_us(context.program, context.machine)
    new_slots = sorted(results.keys() - context.done_slots)
    for slot in new_slots:
        result = _to_result(slot, slots[slot].candidate, results[slot], endpoint, sent_round.build_ms[slot])
        commits.add(reject_implausible(result, least_us))
    commits.commit_all()
    if len(context.done_slots) + len(new_slots) == len(slots):
        stats = {
            "measure_sec": round(sum(result.run_ms for result in results.values()) / 1e3, 3),
            "candidates": len(new_slots),
            "cost_model": context.model_name,
            "disturbance": commits.disturbance,
        }
        close_round(runtime, context, hold, RoundStats.model_validate(stats))
        train(runtime, batch.job_id, context.row.task_id)
    return len(new_slots)


def _to_result(
    slot: int, candidate: Candidate, call: CallResult, endpoint: Endpoint, build_ms: float | None = None
) -> MeasureResult:
    trial = Trial(
        candidate,
        Outcome(call.outcome),
        run_us=call.run_us,
        run_ms=call.run_ms,
        error=call.error,
        build_ms=build_ms,
        disturbed=call.disturbed,
    )
    return MeasureResult(slot, trial, endpoint, call.disturbance)


def _finish_with_results(
    runtime: Runtime, batch: SentBatch, calls: Mapping[str, CallResult], endpoint: Endpoint
) -> int:
    """Run the job's last stage with the batch's results, and return their number (0 if the
    job is done already). Raises Conflict if the batch lost its lease."""
    with runtime.database.session() as session:
        job = Jobs(session).get(batch.job_id, None)
        if job.state == JobState.DONE:
            return 0
        hold = _lease_of(Leases(session), WorkItem(WorkKind.FINISH, batch.job_id), batch)
    if hold is None:
        raise Conflict("the job's last stage is not in this batch any more", hint="mallorn show JOB")
    lease = LeaseKeeper(lambda: True, runtime.settings.lease_sec)
    stage = stage_of(LeasedWork(runtime, hold, job, lease))
    measurer = CarriedTimes(batch.passes, calls, endpoint)
    checker = CarriedChecks(runtime, stage.target, batch.checks, calls)
    while True:
        try:
            finish_stage(stage, (measurer, checker))
            return len(calls)
        except TimeSliceOver:  # no other work waits for this process
            continue


class CarriedTimes(DetachedMeasurer):
    """Takes the final timings of candidates from a batch's results instead of measuring."""

    def __init__(
        self, sent_calls: Sequence[SentCall], calls: Mapping[str, CallResult], endpoint: Endpoint
    ) -> None:
        self._sent_calls, self._calls, self._endpoint = sent_calls, calls, endpoint

    def measure_in_passes(
        self,
        program: Program,
        target: Target,
        inputs: Sequence[MeasureInput],
        options: JobOptions,
        passes: int,
    ) -> list[MeasureResult]:
        results = []
        for slot in inputs:
            key = program.key, slot.candidate.key
            sent_calls = [call for call in self._sent_calls if (call.workload, call.candidate) == key]
            for call in sent_calls:
                results.append(_to_result(slot.slot, slot.candidate, self._calls[call.key], self._endpoint))
            if not sent_calls:
                lost_trial = Trial(slot.candidate, Outcome.WORKER_LOST, error=NOT_SENT)
                results.append(MeasureResult(slot.slot, lost_trial))
        return results


class CarriedChecks(Checker):
    """Takes the numeric checks of candidates from a batch's results; it runs none."""

    def __init__(
        self,
        runtime: Runtime,
        target: Target,
        sent_calls: Sequence[SentCall],
        calls: Mapping[str, CallResult],
    ) -> None:
        super().__init__(runtime, target)
        self._results = {(call.workload, call.candidate): calls[call.key] for call in sent_calls}

    def verify(self, program: Program, slot: MeasureInput) -> NumericCheck:
        result = self._results.get((program.key, slot.candidate.key))
        if result is None:
            return NumericCheck(Outcome.BUILD_ERROR, words=NOT_SENT)
        try:
            trace = self.complete_trace(program, slot) or ""
        except ChildError as error:
            return NumericCheck(Outcome.BUILD_ERROR, words=error.message)
        outcome = Outcome(result.outcome) if trace else Outcome.BUILD_ERROR
        return NumericCheck(outcome, trace, result.max_error, result.error)
