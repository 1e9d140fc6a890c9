"""Choose a task's winner: measure final candidates again, check and store the fastest."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Final

from sqlalchemy.orm import Session

from mallorn.core.outcomes import Outcome
from mallorn.core.values.manifest import UNTIMED_SEC
from mallorn.core.values.trial import Trial
from mallorn.db.repositories.base import ERROR_CHARS
from mallorn.db.repositories.job_events_and_warnings import NewJobWarning, Warnings
from mallorn.db.repositories.measurements import Measurements, NewMeasurement
from mallorn.db.repositories.schedules import NewSchedule, Schedules
from mallorn.db.tables import Job
from mallorn.results.speedup import median_confidence_interval
from mallorn.searchers.base import DEFAULT
from mallorn.workers.finish.final_candidates import Contest
from mallorn.workers.finish.numeric_check import Checker, NumericCheck
from mallorn.workers.measure.measurer_interface import MeasureInput, Measurer, MeasureResult
from mallorn.workers.measure.roofline_check import reject_implausible, shortest_plausible_us
from mallorn.workers.process.leased_work import LeasedStage
from mallorn.workers.round.store_referenced_rows import store_sites, store_sketches

PASSES: Final = 3
# At most RIVALS rivals within this factor of the winner are compiled into the model.
CLOSE: Final = 1.05
RIVALS: Final = 2
ODD: Final = "the device reports other times than all others of its class"
#: Times of devices of one context differ by less than this factor, even if one device is busy.
OTHERWISE: Final = 2.0
Times = Mapping[str, float]  # microseconds per run of the model in each kernel, by the name of its task


@dataclass(frozen=True, slots=True)
class ContestEntry:
    """A final candidate and its measurement results. If it was measured on three or more
    devices, failures on fewer than half of them are ignored."""

    slot: MeasureInput
    results: tuple[MeasureResult, ...]

    @property
    def failure(self) -> Trial | None:
        """The first failed run; None if all passed, or if few of several devices failed."""
        failures = [result.trial for result in self.results if result.trial.outcome.failed]
        devices = {result.endpoint.name for result in self.results if result.endpoint is not None}
        most_ignored = (len(devices) - 1) // 2
        return failures[0] if len(failures) > most_ignored else None

    def merge_into_trial(self, verdict: NumericCheck | None) -> Trial:
        """Merge all measurements into one trial, untimed if the entry or its check failed."""
        first = self.results[0].trial
        untimed = Trial(first.candidate, Outcome.OK, origin="finish", build_ms=first.build_ms)
        if self.failure is not None:
            return replace(untimed, outcome=self.failure.outcome, error=self.failure.error[-ERROR_CHARS:])
        if verdict is not None and not verdict.has_passed:
            return replace(untimed, outcome=verdict.outcome, error=verdict.words[-ERROR_CHARS:])
        trials = [result.trial for result in self._valid_results]
        shares = [trial.disturbed for trial in trials if trial.disturbed is not None]
        return replace(untimed, run_us=self.times, disturbed=fmean(shares) if shares else None)

    @property
    def times(self) -> tuple[float, ...]:
        return tuple(us for result in self._valid_results for us in result.trial.run_us)

    @property
    def _valid_results(self) -> tuple[MeasureResult, ...]:
        """The undisturbed results, or all (upper bounds) if no undisturbed one has times."""
        quiet = tuple(result for result in self.results if not result.trial.is_bound)
        return quiet if any(result.trial.run_us for result in quiet) else self.results

    def median_time_us(self) -> float:
        return median(self.times)

    def sort_key(self) -> tuple[int, float]:
        """Return a sort key: entries that were measured most often first, since slow ones
        are given up early; entries measured equally often by their time."""
        return -len(self.results), self.median_time_us()


def find_deviating_devices(entries: Sequence[ContestEntry]) -> list[str]:
    """Return devices whose times differ from the median of all devices by a factor of two
    or more for most candidates. Only candidates measured on three or more devices count."""
    is_odd_by_device: dict[str, list[bool]] = defaultdict(list)
    for entry in entries:
        by_device = {run.endpoint.name: run.trial for run in entry.results if run.endpoint is not None}
        if len(by_device) < 3 or entry.failure is not None:
            continue
        least_us, most_us = entry.median_time_us() / OTHERWISE, entry.median_time_us() * OTHERWISE
        for name, trial in by_device.items():
            if trial.is_bound:  # other load on the device disturbed it
                continue
            is_odd_by_device[name].append(trial.time_us is None or not least_us <= trial.time_us <= most_us)
    return sorted(name for name, odd in is_odd_by_device.items() if 2 * sum(odd) > len(odd))


@dataclass(frozen=True, slots=True)
class Winner:
    """A task's candidate to export, and unchecked rivals that are nearly as fast."""

    contest: Contest
    slot: int
    trial: Trial  # has the times of all passes, or none if it was not timed
    trace: str
    max_error: float | None  # None: not checked
    rivals: tuple["Winner", ...] = ()
    guess: "Winner | None" = None  # the fastest first guess that ran, if all of them lost
    timing: Mapping[str, object] | None = None  # settings inside a model; None: the job's
    expected_us: float | None = None  # predicted latency of a schedule that was not timed

    @property
    def entry(self) -> MeasureInput:
        """The winner among the contest's candidates."""
        return self.contest.slots[self.slot]

    @property
    def means(self) -> str:
        return self.contest.means.get(self.entry.candidate, DEFAULT)

    @property
    def is_checked(self) -> bool:
        return self.max_error is not None

    @property
    def latency_us(self) -> float | None:
        """Median run time in microseconds; None if the schedule was not timed."""
        return median(self.trial.run_us) if self.trial.run_us else None

    @property
    def interval_us(self) -> tuple[float, float] | tuple[None, None]:
        return median_confidence_interval(self.trial.run_us) if self.trial.run_us else (None, None)

    @property
    def record_times_sec(self) -> list[float]:
        """Run times for the tuning record, in seconds; UNTIMED_SEC if there are none."""
        return [time_us / 1e6 for time_us in self.trial.run_us] or [UNTIMED_SEC]

    def schedule(self, job: Job, context_id: int | None, measurement_id: int) -> NewSchedule:
        """Return the schedule's row. Raises ValueError if it was not checked or timed."""
        if self.max_error is None or self.latency_us is None:
            raise ValueError(f"the schedule of {self.contest.task.name} was not checked, or not timed")
        low_us, high_us = median_confidence_interval(self.trial.run_us)
        return NewSchedule(
            workload_id=self.contest.workload.id,
            target_id=job.target_id,
            context_id=context_id,
            measurement_id=measurement_id,
            job_id=job.id,
            latency_us=self.latency_us,
            low_us=low_us,
            high_us=high_us,
            max_error=self.max_error,
            trace=self.trace,
            run_us=self.trial.run_us,
        )


def add_inside_times(winners: Sequence[Winner], times: Times, is_alone: bool) -> tuple[Winner, ...]:
    """Return the winners with their times per call inside the model, as far as measured:
    upper bounds unless `is_alone`: no other work of this service ran."""
    with_times = []
    for winner in winners:
        task = winner.contest.task
        call_us = times.get(task.name, 0.0) / task.weight
        run_us = (call_us,) if call_us > 0 else ()
        disturbed = None if is_alone else 1.0
        trial = replace(winner.trial, latency_us=None, run_us=run_us, disturbed=disturbed)
        with_times.append(replace(winner, trial=trial))
    return tuple(with_times)


def store_inside_times(
    session: Session, stage: LeasedStage, winners: Sequence[Winner], context_id: int, origin: str
) -> list[int]:
    """Store the winners' times inside the model in a measuring context; return the ids of
    the measurements. Raises LeaseLost if this worker no longer holds the stage."""
    sketches = store_sketches(session, [winner.entry.sketch for winner in winners])
    ids: list[int] = []
    for winner in winners:
        trial = replace(winner.trial, origin=f"{origin}:{winner.means}")
        row = NewMeasurement(winner.slot, trial, sketches[winner.entry.candidate.sketch], context_id)
        workload_id = winner.contest.workload.id
        ids += Measurements(session).add_finish(stage.hold, workload_id, stage.job.target_id, [row])
    return ids


def choose_winner(
    stage: LeasedStage, contest: Contest, measurer: Measurer, checker: Checker
) -> Winner | None:
    """Measure and check a task's final candidates, store the results, and return the
    winner; None if no candidate runs and passes the numeric check."""
    results = measurer.measure_in_passes(contest.program, stage.target, contest.slots, stage.options, PASSES)
    least_us = shortest_plausible_us(contest.program, stage.job.machine)
    results = [reject_implausible(result, least_us) for result in results]
    entries = [ContestEntry(slot, tuple(r for r in results if r.slot == slot.slot)) for slot in contest.slots]
    ranking = sorted((entry for entry in entries if entry.failure is None), key=ContestEntry.sort_key)
    verdicts: dict[int, NumericCheck] = {}
    winner = None
    for place, entry in enumerate(ranking):
        stage.lease.raise_if_lost()
        verdicts[entry.slot.slot] = verdict = checker.verify(contest.program, entry.slot)
        if verdict.has_passed:
            winner = _winner(contest, entry, verdict)
            slower = ranking[place + 1 :]
            guess = None  # the fastest first guess, if it lost: it may be faster inside the model
            if entry.slot.candidate not in contest.guesses:
                guesses = [loser for loser in slower if loser.slot.candidate in contest.guesses]
                guess = next(_unchecked(contest, guesses, checker), None)
            rivals = [
                rival
                for rival in slower
                if (guess is None or rival.slot.slot != guess.slot)
                and len(rival.results) == len(entry.results)
                and rival.median_time_us() <= CLOSE * entry.median_time_us()
            ]
            winner = replace(winner, rivals=tuple(_unchecked(contest, rivals[:RIVALS], checker)), guess=guess)
            break
    stage.lease.raise_if_lost()
    with stage.runtime.database.transaction() as session:
        _store(session, stage, contest, entries, verdicts, winner)
        for name in find_deviating_devices(entries):
            warning = NewJobWarning(f"device {name}", ODD, f"mallorn devices withdraw {name}")
            Warnings(session).add(stage.job.id, warning)
    return winner


def _winner(contest: Contest, entry: ContestEntry, verdict: NumericCheck) -> Winner:
    return Winner(contest, entry.slot.slot, entry.merge_into_trial(verdict), verdict.trace, verdict.max_error)


def _unchecked(contest: Contest, entries: Sequence[ContestEntry], checker: Checker) -> Iterator[Winner]:
    for entry in entries:
        if trace := checker.complete_trace(contest.program, entry.slot):
            yield _winner(contest, entry, NumericCheck(Outcome.OK, trace))


def _store(
    session: Session,
    stage: LeasedStage,
    contest: Contest,
    entries: Sequence[ContestEntry],
    verdicts: dict[int, NumericCheck],
    winner: Winner | None,
) -> None:
    job = stage.job
    sketches = store_sketches(session, [entry.slot.sketch for entry in entries])
    endpoints = [entry.results[0].endpoint for entry in entries]
    sites = store_sites(session, job.target_id, stage.target, stage.options, endpoints)
    rows = []
    for entry, site in zip(entries, sites, strict=True):
        trial = entry.merge_into_trial(verdicts.get(entry.slot.slot))
        sketch_id = sketches[entry.slot.candidate.sketch]
        rows.append(NewMeasurement(entry.slot.slot, trial, sketch_id, site.context_id, site.device_id))
    ids = Measurements(session).add_finish(stage.hold, contest.workload.id, job.target_id, rows)
    if winner is None or winner.max_error is None:  # only checked schedules are stored
        return
    id_of = dict(zip(sorted(row.slot for row in rows), ids, strict=True))
    site_of = {entry.slot.slot: site for entry, site in zip(entries, sites, strict=True)}
    context_id = site_of[winner.slot].context_id
    Schedules(session).promote(winner.schedule(job, context_id, id_of[winner.slot]))
