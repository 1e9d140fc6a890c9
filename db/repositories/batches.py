"""A round's batch: what its candidates were expected to be, and what they turned out to be."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select

from db.codec import unpack_decisions
from db.repositories.base import Repository
from db.tables import Measurement, SketchRow
from mallorn.core.outcomes import Outcome
from mallorn.core.states import MeasurementKind


@dataclass(frozen=True, slots=True)
class Timed:
    """A candidate of a round with a valid time. Latencies compare only between equal `context_id`s."""

    sketch: str  # Sketch.key
    decisions: tuple[int, ...]
    latency_us: float
    context_id: int
    predicted: float | None


class Batches(Repository):
    """Reads what rounds measured, by round."""

    def timed(self, round_id: int) -> Sequence[Timed]:
        """The valid candidates of a round, whichever attempt committed them, in their order."""
        columns = Measurement.latency_us, Measurement.context_id, Measurement.predicted
        valid = Measurement.kind == MeasurementKind.TRIAL, Measurement.outcome == Outcome.OK
        query = (
            select(SketchRow.key, Measurement.decisions, *columns)
            .join(SketchRow, SketchRow.id == Measurement.sketch_id)
            .where(Measurement.round_id == round_id, *valid)
            .order_by(Measurement.slot)
        )
        return [
            Timed(sketch, unpack_decisions(decisions), latency_us, context_id, predicted)
            for sketch, decisions, latency_us, context_id, predicted in self.session.execute(query)
            if latency_us is not None and context_id is not None  # what is valid has both
        ]
