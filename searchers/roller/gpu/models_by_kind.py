"""Finds the time model of a sketch for GPUs."""

from collections.abc import Mapping, Sequence
from typing import Final

from mallorn.core.values.machine import Machine
from mallorn.searchers.loop_nest import Nest
from mallorn.searchers.roller.gpu.cuda_core_product import CudaCoreProduct
from mallorn.searchers.roller.gpu.metaschedule_tiles import SummingSketch, TiledSketch
from mallorn.searchers.roller.gpu.model_interface import GpuModel
from mallorn.searchers.roller.gpu.row_reduction import RowReduction
from mallorn.searchers.roller.gpu.sketch_model import SketchModel, UnknownKind
from mallorn.searchers.roller.gpu.tensor_core_product import TensorCoreProduct
from mallorn.searchers.roller.gpu.thread_sum import ThreadSum
from mallorn.searchers.space import Sketch

_BY_KIND: Final[Mapping[str, type[SketchModel]]] = {
    "tensor core product": TensorCoreProduct,
    "cuda core product": CudaCoreProduct,
    "vector product": ThreadSum,
    "row reduction": RowReduction,
}


def gpu_model(sketch: Sketch, nests: Sequence[Nest], machine: Machine) -> GpuModel | None:
    """Return the model of a sketch; None if it is neither of a kind of ours nor one of
    MetaSchedule's that have models."""
    if sketch.facts:
        kind = _BY_KIND.get(sketch.facts["kind"], UnknownKind)
        if kind is RowReduction and "narrow" in sketch.facts:  # a single sum
            kind = ThreadSum
        return kind(sketch, nests, machine)
    if TiledSketch.fits(sketch):
        return TiledSketch(sketch, nests, machine)
    return SummingSketch(sketch, nests, machine) if SummingSketch.fits(sketch) else None
