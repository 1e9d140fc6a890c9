"""Candidates that were left unbuilt because they unroll too far: a choice, and no failure."""

from sqlalchemy import ColumnElement, and_, func, not_

from db.tables import Measurement
from mallorn.core.outcomes import NOT_COMPILED, Outcome


def left_unbuilt() -> ColumnElement[bool]:
    """Whether the row tells of one."""
    text = func.coalesce(Measurement.error, "")
    return and_(Measurement.outcome == Outcome.BUILD_ERROR, text.startswith(NOT_COMPILED, autoescape=True))


def failed() -> ColumnElement[bool]:
    """Whether the row tells of a failure."""
    return and_(Measurement.outcome != Outcome.OK, not_(left_unbuilt()))
