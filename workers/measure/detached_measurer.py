"""The measurer of jobs whose device no worker can reach; `mallorn batch` files reach it."""

from collections.abc import Generator, Sequence

from mallorn.core.errors import InvalidRequest, Unavailable
from mallorn.core.job_options import JobOptions
from mallorn.core.targets import Target
from mallorn.workers.measure.measurer_interface import MeasureInput, Measurer, MeasureResult, Need, Program


class DetachedMeasurer(Measurer):
    """Refuses to time anything: its jobs wait for results of batches (ADR 0063)."""

    def measure(
        self,
        program: Program,
        target: Target,
        slots: Sequence[MeasureInput],
        options: JobOptions,
        best_us: float | None = None,
    ) -> Generator[MeasureResult, None, None]:
        raise Unavailable("a detached device times batches only", hint="mallorn batch next JOB -o FILE")

    def measure_in_passes(
        self,
        program: Program,
        target: Target,
        slots: Sequence[MeasureInput],
        options: JobOptions,
        passes: int,
    ) -> list[MeasureResult]:
        raise Unavailable("a detached device times batches only", hint="mallorn batch next JOB -o FILE")

    def require(self, need: Need) -> bool:
        if need is Need.TIME:
            raise InvalidRequest("a batch carries kernels, not the whole model", hint="mallorn bench MODEL")
        return True
