"""What the graph compiler does for NVIDIA's GPUs. Exports take this folder along."""

import importlib
from typing import ClassVar

from mallorn.graphc.core.graph_kind import GraphKind
from mallorn.kinds.cuda.graph.cuda_toolkit import prepare_stock_tvm

_FOLDER = "mallorn.kinds.cuda.graph"
INSTRUCTIONS = f"{_FOLDER}.tensor_core_instructions"
NAMED = '["mallorn_mma_'  # in records


class CudaGraph(GraphKind):
    # Makes copies to shared memory asynchronous where a schedule's pipeline asks for it.
    # Without this option TVM compiles the same schedule to ordinary copies.
    pass_options: ClassVar = {"tirx.use_async_copy": True}
    # One graph launch replaces hundreds of kernel launches inside the network.
    build_options: ClassVar = {"relax.backend.use_cuda_graph": True}
    replaced_rules: ClassVar = {"s_tir.dlight.gpu.Matmul": f"{_FOLDER}.dlight_int8_matmul:LowerableMatmul"}
    passes: ClassVar = {"fuse_short_attention": f"{_FOLDER}.fuse_short_attention"}

    def prepare_stock_tvm(self) -> None:
        prepare_stock_tvm()

    def load_instructions(self, records: str) -> None:
        if NAMED in records:
            importlib.import_module(INSTRUCTIONS)
