"""How programs are compiled for CPUs."""

from collections.abc import Sequence

from mallorn.workers.interfaces.hardware_probes import Probe
from mallorn.workers.tvm.programs.compiler_kind import CompilerKind
from mallorn.workers.tvm.sessions.cpu_probes import build_probes

GRAPHC = "mallorn.graphc"
#: Instructions and rules of ours that every CPU has.
OURS = (
    f"{GRAPHC}.quant.block_quantized_matmul_function",
    f"{GRAPHC}.tasks.mark_tasks",
    f"{GRAPHC}.conv.fuse_pointwise_into_depthwise",
    f"{GRAPHC}.quant.tile_instructions",
)


class CpuCompiler(CompilerKind):
    intrinsics: Sequence[str] = OURS

    def build_probes(self, target_text: str, folder: str) -> list[Probe]:
        return build_probes(target_text, folder)
