"""DLight's schedule rule for matrix products on GPUs, changed so that TVM lowers int8."""

from typing import Any, Final

from tvm.s_tir.dlight.gpu import Matmul

INT8: Final = "_s8s8s32"  # part of the tensor-core instruction's name


class LowerableMatmul(Matmul):  # type: ignore[misc]
    """Schedules a product by DLight, without software pipelines for int8 on tensor cores.

    One of DLight's two pipelines always has a single iteration, which TVM 0.27 cannot lower.
    """

    def apply(self, func: Any, target: Any, tunable: bool) -> Any | None:
        """Return the schedule, or None if the function is no matrix product."""
        schedule = super().apply(func, target, tunable)
        if schedule is not None and INT8 in str(schedule.trace):
            for step in schedule.trace.insts:
                if step.kind.name == "Annotate" and str(step.attrs[0]).startswith("software_pipeline_"):
                    schedule.unannotate(step.inputs[0], step.attrs[0])
        return schedule
