"""A round's batch: what its candidates were expected to be, and what they turned out to be."""

from collections.abc import Sequence

from sqlalchemy import select

from db.codec import unpack_decisions
from db.repositories.base import Repository
from db.tables import Measurement, SketchRow
from mallorn.core.outcomes import Outcome
from mallorn.core.states import MeasurementKind
from mallorn.core.values.candidate import Candidate
from mallorn.core.values.trial import Trial


class Batches(Repository):
    """Reads what rounds measured, by round."""

    def timed(self, round_id: int) -> Sequence[tuple[Trial, int]]:
        """The valid candidates of a round in their order, whichever attempt committed them; and contexts."""
        columns = Measurement.decisions, Measurement.latency_us, Measurement.predicted, Measurement.context_id
        valid = Measurement.kind == MeasurementKind.TRIAL, Measurement.latency_us.is_not(None)
        query = (
            select(SketchRow.key, *columns)
            .join(SketchRow, SketchRow.id == Measurement.sketch_id)
            .where(Measurement.round_id == round_id, *valid)
            .order_by(Measurement.slot)
        )
        return [
            (
                Trial(
                    Candidate(sketch, unpack_decisions(packed)), Outcome.OK, latency_us, predicted=predicted
                ),
                context_id,
            )
            for sketch, packed, latency_us, predicted, context_id in self.session.execute(query)
            if context_id is not None  # what is valid has one
        ]
