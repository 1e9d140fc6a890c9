"""Lessons out of a database: what a snapshot froze."""

from collections.abc import Mapping, Sequence
from typing import Final

from sqlalchemy.orm import Session

from db.columns import Columns
from db.dataset.snapshots import Frozen, Progress, silent, take_snapshot
from db.repositories.networks import Networks
from db.repositories.selection import Selection
from db.repositories.sketches import Sketches
from db.repositories.snapshots import Snapshots
from db.repositories.workloads import Workloads
from db.session import Database
from db.tables import Snapshot
from mallorn.core.outcomes import Outcome
from mallorn.core.states import MeasurementKind
from research.lessons.gathering import MOST_ROWS, NOWHERE, Facts, Gathering, Place
from research.lessons.lesson import Lessons
from workers.round.context import descriptors_of
from workers.search.space import Sketch

SOME: Final = 500  # names in one query


def lessons_of(
    database: Database,
    snapshot: str | None,
    selection: Selection,
    progress: Progress = silent,
    limit: int = MOST_ROWS,
) -> Lessons:
    """What a snapshot froze; without a name what is selected is frozen now, under a name of its own.

    Raises NotFound for a snapshot, target or operator that is not there.
    """
    frozen = _frozen(database, snapshot, selection, progress)
    gathering, ids = Gathering(frozen.rows, limit), dict[str, int]()
    for page in Frozen.of(database, frozen).pages(database, progress):
        ids |= _gather(gathering, page)
    with database.session() as session:
        facts = _facts(session, [ids[key] for key in gathering.workloads])
        lessons = gathering.lessons(facts, _sketches(session, sorted(gathering.sketches)))
        return Lessons(lessons, frozen.name, frozen.upto, Networks(session).weights())


def _frozen(database: Database, name: str | None, selection: Selection, progress: Progress) -> Snapshot:
    if name is None:
        return take_snapshot(database, None, selection, progress)
    with database.session() as session:
        return Snapshots(session).get(name)


def _gather(gathering: Gathering, page: Columns) -> Mapping[str, int]:
    """Show it the trials of a page; the ids of their workloads by key."""
    ids: dict[str, int] = {}
    places = page.rows("workload_id", "workload", "target", "context_id", "kind")
    trials = page.rows("sketch", "decisions", "outcome", "latency_us")
    for place, trial in zip(places, trials, strict=True):
        number, workload, target, context_id, kind = place
        sketch, decisions, outcome, latency_us = trial
        if MeasurementKind(kind).measured is MeasurementKind.TRIAL:
            ids[workload] = number
            here = Place(workload, target, NOWHERE if context_id is None else str(context_id))
            gathering.add(here, sketch, decisions, Outcome(outcome), latency_us)
    return ids


def _facts(session: Session, workload_ids: Sequence[int]) -> Mapping[str, Facts]:
    return {
        row.key: Facts(row.op, descriptors_of(row), row.id)
        for start in range(0, len(workload_ids), SOME)
        for row in Workloads(session).get_many(workload_ids[start : start + SOME])
    }


def _sketches(session: Session, keys: Sequence[str]) -> Mapping[str, Sketch]:
    return {
        key: sketch
        for start in range(0, len(keys), SOME)
        for key, sketch in Sketches(session).by_key(keys[start : start + SOME]).items()
    }
