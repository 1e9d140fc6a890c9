"""What must hold of every run, whatever the weather: each law names what it found."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from mallorn.core.states import Cause, JobState, MeasurementKind, RoundState
from mallorn.db.measurement_codec import unpack_decisions
from mallorn.db.repositories.devices import machine_key_of
from mallorn.db.repositories.invariants import Invariants
from mallorn.db.tables import Context, Job, Measurement, Round, Schedule, SketchRow, Workload
from mallorn.searchers.fill_round import UNDECIDED
from tests.simulation.history import COMMITTED, History
from tests.simulation.kinds import UNMENDED, Kind
from tests.simulation.parts import WORKERS
from tests.simulation.sky import STRANGE
from tests.simulation.storage import Storage
from tests.simulation.weather import Fault, costs_leases, hosts_of

LOSSES: Final = 3  # that a stage may have before it is given up
GONE: Final = frozenset({"NoResultFound", "IntegrityError"})  # whatever it belongs to
LACKING: Final = (Cause.NO_DEVICE, Cause.NOT_HERE, Cause.UNLIKE)  # that a job is paused for


def broken_laws(
    storage: Storage, history: History, owners: Sequence[Any], faults: Sequence[Fault]
) -> list[str]:
    """What does not hold, in words."""
    with Session(storage.engine) as session:
        rows = _Rows(session)
        broken = Invariants(session).find_broken()
    return [
        *(f"{text}, but not for {', '.join(found)}" for text, found in broken.items()),
        *_every_job_ends(rows, owners, faults),
        *_every_candidate_counts_once(rows, history),
        *_nothing_is_measured_twice(rows, history),
        *_a_round_proposes_once(history),
        *_budgets_are_kept(rows),
        *_schedules_are_checked(rows, history),
        *_one_holder_at_a_time(history),
        *_owners_are_apart(history, owners),
        *_private_stays_private(history),
        *_nothing_raises(history),
        *(() if Kind.SKEW in UNMENDED else _ticks_are_heard(history)),
        *_what_is_measured_ran(rows, history),
        *_times_compare(rows),
        *_one_code_builds_a_context(rows, history),
        *(f"two wait for each other: {words}" for words in storage.deadlocks),
    ]


class _Rows:
    """All that the laws look at."""

    def __init__(self, session: Any) -> None:
        self.jobs = session.scalars(select(Job).order_by(Job.id)).all()
        self.rounds = {row.id: row for row in session.scalars(select(Round).order_by(Round.id))}
        trial = Measurement.kind == MeasurementKind.TRIAL
        self.trials = session.scalars(select(Measurement).where(trial).order_by(Measurement.id)).all()
        promoted = select(Schedule, Measurement, Workload.key, SketchRow.key)
        promoted = promoted.join(Measurement, Measurement.id == Schedule.measurement_id)
        promoted = promoted.join(Workload, Workload.id == Schedule.workload_id)
        self.promoted = session.execute(promoted.join(SketchRow, SketchRow.id == Measurement.sketch_id)).all()
        ran = select(Measurement.id, Workload.key, SketchRow.key, Measurement.decisions).where(trial)
        ran = ran.join(Workload, Workload.id == Measurement.workload_id).order_by(Measurement.id)
        ran = ran.join(SketchRow, SketchRow.id == Measurement.sketch_id)
        self.reached = session.execute(ran.where(Measurement.device_id.is_not(None))).all()
        self.contexts = {row.id: row for row in session.scalars(select(Context))}
        self.spent = Counter(row.job_id for row in self.trials)


def _every_job_ends(rows: _Rows, owners: Sequence[Any], faults: Sequence[Fault]) -> Iterator[str]:
    known = {job.id: job for job in rows.jobs}
    nowhere = len(hosts_of(faults, Kind.SICK, WORKERS)) == WORKERS  # can rounds be run
    for owner in owners:
        for job_id in owner.accepted:
            job = known.get(job_id)
            if job is None and owner.may_miss(job_id):
                continue
            if job is None:
                yield f"job {job_id} of {owner.name} was accepted and is gone"
            elif _may_rest(owner, job, nowhere):
                continue
            elif not JobState(job.state).is_final:
                yield f"job {job_id} has not ended: it is {job.state} ({job.waiting_because})"
            elif job.state == JobState.FAILED and costs_leases(faults) < LOSSES:
                yield f"job {job_id} failed for nothing of its own: {job.ended_because}"
        wanted = sum(job_id in known or not owner.may_miss(job_id) for job_id in owner.accepted)
        if (there := sum(job.owner == owner.name for job in rows.jobs)) != wanted:
            yield f"{owner.name} asked for {wanted} jobs, and there are {there}"


def _may_rest(owner: Any, job: Job, nowhere: bool) -> bool:
    """Whether a job may end where nothing goes on: for what it is, or what no host or device has."""
    if owner.name.startswith(STRANGE):
        return job.state in (JobState.PAUSED, JobState.FAILED)
    return job.state == JobState.PAUSED and (job.cause in LACKING or nowhere)


def _every_candidate_counts_once(rows: _Rows, history: History) -> Iterator[str]:
    places = Counter((row.round_id, row.slot) for row in rows.trials)
    yield from (f"slot {place} is counted {count} times" for place, count in places.items() if count > 1)
    by_round: dict[Any, list[Measurement]] = defaultdict(list)
    for row in rows.trials:
        by_round[row.round_id].append(row)
    for number, found in rows.rounds.items():
        measured = by_round.get(number, [])
        candidates = {(row.sketch_id, row.decisions) for row in measured}
        if len(candidates) < len(measured):
            yield f"round {number} counts a candidate twice: {len(measured)} rows of {len(candidates)}"
        if len(measured) > found.size:
            yield f"round {number} of {found.size} has {len(measured)} trials"
        if found.state == RoundState.DONE and len(measured) < found.size:
            yield f"round {number} is done with {len(measured)} of {found.size} trials"
    for entry in history.committed("commit"):
        lost = [slot for slot in entry.facts[2] if (entry.facts[0], slot) not in places]
        if lost:
            yield f"round {entry.facts[0]}: slots {lost} were committed and are gone"


def _nothing_is_measured_twice(rows: _Rows, history: History) -> Iterator[str]:
    """By rounds of jobs that learn from each other; a restore may take away what they knew."""
    jobs = {job.id: job for job in rows.jobs}
    found = defaultdict[Any, list[Measurement]](list)
    for row in rows.trials:
        if row.outcome not in UNDECIDED and row.bound_us is None and row.context_id is not None:
            owner = jobs[row.job_id].owner if jobs[row.job_id].private else ""
            found[owner, row.workload_id, row.context_id, row.sketch_id, row.decisions].append(row)
    for measured in found.values() if not history.of("restored") else ():
        rounds = sorted({row.round_id for row in measured if row.round_id is not None})
        if len(rounds) > 1:
            yield f"rounds {rounds} measured one candidate"


def _a_round_proposes_once(history: History) -> Iterator[str]:
    for number, count in Counter(entry.facts[0] for entry in history.committed("propose")).items():
        if count > 1:
            yield f"round {number} stored its proposals {count} times"


def _budgets_are_kept(rows: _Rows) -> Iterator[str]:
    for job in rows.jobs:
        spent = rows.spent[job.id]
        if spent > job.trials:
            yield f"job {job.id} has spent {spent} of {job.trials} trials"
        poisoned = any(
            row.job_id == job.id and row.state == RoundState.POISON for row in rows.rounds.values()
        )
        if job.state == JobState.DONE and spent < job.trials and not poisoned:
            yield f"job {job.id} is done with {spent} of {job.trials} trials: {job.tuning_ended}"


def _schedules_are_checked(rows: _Rows, history: History) -> Iterator[str]:
    right = {entry.facts[:3] for entry in history.of("checked") if entry.facts[3]}
    for schedule, row, workload, sketch in rows.promoted:
        if (workload, sketch, unpack_decisions(row.decisions)) not in right:
            yield f"schedule {schedule.id} of {workload} was promoted without a check that it passed"


def _one_holder_at_a_time(history: History) -> Iterator[str]:
    """By the database's own clock, which all of them ask; since it was restored, where it was."""
    held: dict[tuple[str, str], tuple[int, float, str]] = {}
    for entry in history.committed(*COMMITTED):
        facts = entry.facts
        if entry.what == "pull":  # leases that lay ahead of a clock that was set back
            held = {item: (number, min(ends, facts[0]), who) for item, (number, ends, who) in held.items()}
            continue
        if entry.what == "commit":
            facts = ("round", str(facts[0]), *facts[1:])
        item = (str(facts[0]), str(facts[1]))
        attempt, until, holder = held.get(item, (0, 0.0, ""))
        taken = entry.what == "release" and facts[3] == "as lost"
        if entry.what == "claim":
            if facts[2] <= attempt:
                yield f"{item} is claimed as attempt {facts[2]} after attempt {attempt}"
            if until > facts[3] + 1e-3:
                yield f"{item} is claimed by {entry.who} while attempt {attempt} holds it"
            held[item] = facts[2], facts[4], entry.who
        elif entry.what == "rest":
            held[item] = attempt, 0.0, ""
        elif facts[2] != attempt or (not taken and (until == 0.0 or holder != entry.who)):
            yield f"{entry.who} does {entry.what} for attempt {facts[2]} of {item}, which it does not hold"
        elif entry.what == "renew":
            held[item] = attempt, facts[3], holder
        elif entry.what == "release":
            held[item] = attempt, 0.0, ""


def _owners_are_apart(history: History, owners: Sequence[Any]) -> Iterator[str]:
    for entry in history.of("listed"):
        if entry.facts[0] != entry.facts[2]:
            yield f"{entry.facts[0]} sees job {entry.facts[1]} of {entry.facts[2]}"


def _private_stays_private(history: History) -> Iterator[str]:
    for entry in history.of("exported"):
        name, known = entry.facts
        if not known:
            yield f"{name} is exported, which private jobs alone brought"


def _nothing_raises(history: History) -> Iterator[str]:
    """But over what a restore took away, in whoever works on it. What ends a thread ends a loop."""
    restored = bool(history.of("restored"))
    for entry in history.of("raised", "fell"):
        if entry.what == "fell" or not (restored and GONE & {*entry.facts}):
            yield f"{entry.who} {entry.what}: {' '.join(map(str, entry.facts))}"


def _ticks_are_heard(history: History) -> Iterator[str]:
    """Whatever the clocks of those who sweep and reap say."""
    for entry in history.of("expired"):
        yield f"{entry.who} does not do {entry.facts[0]}, as its time is over by another's clock"


def _what_is_measured_ran(rows: _Rows, history: History) -> Iterator[str]:
    """On a device, as the program that it is kept for."""
    ran = {entry.facts for entry in history.of("ran")}
    for row_id, workload, sketch, decisions in rows.reached:
        if (workload, sketch, unpack_decisions(decisions)) not in ran:
            yield f"trial {row_id} is kept for {workload}, as which it never ran"


def _one_code_builds_a_context(rows: _Rows, history: History) -> Iterator[str]:
    """What is stored in a context was built by the code that the context names."""
    for event in history.of("built"):
        builder, contexts = event.facts
        for context_id in contexts:
            if (context := rows.contexts.get(context_id)) is not None and context.built_by != builder:
                yield f"{builder} built what is stored in a context of {context.built_by}"


def _times_compare(rows: _Rows) -> Iterator[str]:
    """A job's times are of its context or of another builder's; a schedule has the context of its time."""
    for job in rows.jobs:
        contexts = {row.context_id for row in rows.trials if row.job_id == job.id} - {None, job.context_id}
        unlike = {each for each in contexts if not _differ_in_builder(rows, each, job.context_id)}
        if unlike:
            yield f"job {job.id} of context {job.context_id} has trials of {sorted(unlike)}"
    for schedule, row, _workload, _sketch in rows.promoted:
        if schedule.context_id != row.context_id:
            yield f"schedule {schedule.id} of {schedule.context_id} was timed in context {row.context_id}"


def _differ_in_builder(rows: _Rows, one: int, other: int | None) -> bool:
    both = [machine_key_of(rows.contexts[each]) for each in (one, other) if each in rows.contexts]
    return len(both) == 2 and both[0] == both[1]
