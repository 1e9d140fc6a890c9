"""The features of lessons, in the view that a cost model reads."""

from collections.abc import Sequence

from costmodels.base import Matrix
from costmodels.views import DECISIONS
from mallorn.core.errors import InvalidRequest
from workers.lessons.lesson import Lesson
from workers.lessons.rows import Rows, rows_of
from workers.search.features import describe_all


def rows_for(lessons: Sequence[Lesson], view: str) -> Rows:
    """The rows of lessons as a model of this view takes them."""
    return rows_of(lessons, [features_of(lesson, view) for lesson in lessons])


def features_of(lesson: Lesson, view: str) -> Matrix:
    """One row a candidate. Raises InvalidRequest for a view that needs more than decisions."""
    if view != DECISIONS.name:
        raise InvalidRequest(
            f"nothing computes the view {view!r} of stored rows", hint="mallorn evaluate xgboost"
        )
    return describe_all(lesson.sketches, lesson.descriptors, lesson.candidates)
