"""The measurer of jobs whose device no worker can reach; `mallorn batch` files reach it."""

from collections.abc import Generator
from typing import Any

from mallorn.core.errors import InvalidRequest, Unavailable
from mallorn.workers.measure.measurer_interface import Measurer, MeasureResult, Need


class DetachedMeasurer(Measurer):
    """Refuses to time anything: its jobs wait for results of batches (ADR 0063)."""

    def measure(self, *_args: Any, **_options: Any) -> Generator[MeasureResult, None, None]:
        raise Unavailable("a detached device times batches only", hint="mallorn batch next JOB -o FILE")

    def require(self, need: Need) -> bool:
        if need is Need.TIME:
            raise InvalidRequest("a batch carries kernels, not the whole model", hint="mallorn bench MODEL")
        return True
