"""The features of lessons, in the view that a cost model reads."""

from collections.abc import Sequence

from costmodels.base import Matrix
from mallorn.core.errors import InvalidRequest
from mallorn.core.names import REGISTRY, resolve
from workers.features.base import Extractor
from workers.lessons.lesson import Lesson
from workers.lessons.rows import Rows, rows_of


def rows_for(lessons: Sequence[Lesson], view: str) -> Rows:
    """The rows of lessons as a model of this view takes them."""
    return rows_of(lessons, [features_of(lesson, view) for lesson in lessons])


def features_of(lesson: Lesson, view: str) -> Matrix:
    """One row a candidate. Raises InvalidRequest for a view that needs more than decisions."""
    if view not in REGISTRY["features"]:
        raise InvalidRequest(
            f"the view {view!r} takes a compiler, and lessons are read without one",
            hint="mallorn evaluate xgboost",
        )
    extractor: Extractor = resolve("features", view)()
    return extractor.extract(lesson.sketches, lesson.descriptors, lesson.candidates)
