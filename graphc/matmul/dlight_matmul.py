"""DLight's schedule rule for products on a GPU, with pipelines that TVM can lower."""

from typing import Any

from tvm.s_tir.dlight.gpu import Matmul
from tvm.tirx import IntImm


class LowerableMatmul(Matmul):  # type: ignore[misc]
    """Schedule a product by DLight, without its software pipelines if one of them is over a single iteration.

    TVM 0.27 cannot lower such a pipeline, and DLight makes one for each product of int8 on tensor cores.
    """

    def apply(self, func: Any, target: Any, tunable: bool) -> Any | None:
        """Return the schedule, or None if the function is no product."""
        schedule = super().apply(func, target, tunable)
        if schedule is None:
            return None
        pipelines = [
            (step.inputs[0], step.attrs[0])
            for step in schedule.trace.insts
            if step.kind.name == "Annotate" and str(step.attrs[0]).startswith("software_pipeline_")
        ]
        extents = [schedule.get(loop).extent for loop, _ in pipelines]
        if any(isinstance(extent, IntImm) and int(extent) == 1 for extent in extents):
            for loop, annotation in pipelines:
                schedule.unannotate(loop, annotation)
        return schedule
