"""DLight's schedule rule for products on a GPU, with int8 products that TVM can lower."""

from typing import Any, Final

from tvm.s_tir.dlight.gpu import Matmul

INT8: Final = "_s8s8s32"  # in the name of the tensor-core instruction


class LowerableMatmul(Matmul):  # type: ignore[misc]
    """Schedule a product by DLight, without software pipelines if it multiplies int8 on tensor cores.

    One of their two pipelines has a single iteration whatever the sizes, and TVM 0.27 cannot lower it.
    """

    def apply(self, func: Any, target: Any, tunable: bool) -> Any | None:
        """Return the schedule, or None if the function is no product."""
        schedule = super().apply(func, target, tunable)
        if schedule is not None and INT8 in str(schedule.trace):
            for step in schedule.trace.insts:
                if step.kind.name == "Annotate" and str(step.attrs[0]).startswith("software_pipeline_"):
                    schedule.unannotate(step.inputs[0], step.attrs[0])
        return schedule
