"""The features of lessons, in the view that a cost model reads."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from db.repositories.targets import Targets
from db.repositories.workloads import Workloads, tir_of
from mallorn.core.errors import InvalidRequest
from mallorn.core.names import resolve
from mallorn.core.targets import parse_target
from research.lessons.lesson import Lesson
from research.lessons.rows import Rows, rows_of
from workers.round.viewing import LOWERED, Seen, Viewer, Work


class LoweredViews(Protocol):
    """Whoever has the views that take a compiler."""

    def see(self, lesson: Lesson, view: str) -> Seen:
        """The candidates of a lesson in this view. Raises InvalidRequest where it is not to be had."""


@dataclass(frozen=True, slots=True)
class Lowering:
    """Fills views that need a compiler, for lessons of the viewer's database."""

    viewer: Viewer
    most_new: int  # candidates of a lesson that nobody has seen before

    def see(self, lesson: Lesson, view: str) -> Seen:
        """Raises InvalidRequest for a lesson from elsewhere."""
        if lesson.workload_id is None:
            raise _not_here(view)
        with self.viewer.database.session() as session:
            tir = tir_of(Workloads(session).get(lesson.workload_id))
            target = Targets(session).find(parse_target(lesson.target).key)
        if target is None:
            raise _not_here(view)
        facts = lesson.workload_id, target.id, tir, lesson.target, lesson.descriptors
        return self.viewer.see(view, Work(*facts, lesson.sketches), lesson.candidates, self.most_new)


def rows_for(lessons: Sequence[Lesson], view: str, lowering: LoweredViews | None = None) -> Rows:
    """The rows of lessons as a model of this view takes them; candidates that cannot be seen are left out.

    Raises InvalidRequest for a view that needs a compiler where there is none.
    """
    if view in LOWERED and lowering is None:
        raise _not_here(view)
    seen = [_see(lesson, view, lowering) for lesson in lessons]
    known = [
        lesson if found.known.all() else lesson.take(np.flatnonzero(found.known).tolist())
        for lesson, found in zip(lessons, seen, strict=True)
    ]
    return rows_of(known, [found.rows[found.known] for found in seen])


def _see(lesson: Lesson, view: str, lowering: LoweredViews | None) -> Seen:
    if view in LOWERED and lowering is not None:
        return lowering.see(lesson, view)
    rows = resolve("features", view)().extract(lesson.sketches, lesson.descriptors, lesson.candidates)
    return Seen(rows, np.ones(len(lesson.trials), dtype=np.bool_))


def _not_here(view: str) -> InvalidRequest:
    return InvalidRequest(
        f"the view {view!r} needs a compiler, and the programs of a dataset",
        hint="mallorn dataset import DIR   (then without Parquet files)",
    )
