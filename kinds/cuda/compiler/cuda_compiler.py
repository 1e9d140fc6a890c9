"""How programs are scheduled and compiled for NVIDIA's GPUs."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any, Final

from mallorn.kinds.cuda.compiler import cuda_rules
from mallorn.kinds.cuda.compiler.compile_cuda import collect_device_code
from mallorn.kinds.cuda.compiler.cuda_kernel_resources import compile_for_cuda
from mallorn.kinds.cuda.compiler.cuda_probes import build_cuda_probes
from mallorn.workers.interfaces.hardware_probes import Probe
from mallorn.workers.tvm.programs.compiler_kind import CompilerKind
from mallorn.workers.tvm.programs.parsed_program_cache import TILES

#: Modules of our own kinds of schedules, in the order of their sketches.
SKETCHES: Final = (
    *("tensor_core_products", "thread_sums", "row_reductions", "cuda_core_products"),
    *("movers", "windows", "short_attention"),
)


class CudaCompiler(CompilerKind):
    intrinsics = (
        "tvm.s_tir.tensor_intrin.cuda",
        "mallorn.kinds.cuda.graph.tensor_core_instructions",
    )
    has_own_sketches = True
    limits_extrema = False

    def design_spaces(self, target: Any) -> Sequence[tuple[Any, Any]]:
        """Allow the larger shared-memory limit, which kernels must opt in to."""
        generators = cuda_rules.space_generators(target)
        return [(cuda_rules.with_opt_in_shared_memory(target), generator) for generator in generators]

    def is_of_further_space(self, trace: str) -> bool:
        return cuda_rules.MMA in trace

    def own_schedules(self, module: Any, space_target: Any, target: Any) -> Iterator[Any]:
        for name in SKETCHES:  # imported late: `intrinsics` are registered faster
            sketches = import_module(f"mallorn.kinds.cuda.sketches.{name}")
            yield from sketches.schedules(module, space_target)
        dlight = cuda_rules.dlight_schedule(module, target)
        yield from () if dlight is None else (dlight,)

    def opts_in(self, instructions: Sequence[Any], is_fixed: bool) -> bool:
        return is_fixed or any(cuda_rules.DYNAMIC in inst.attrs for inst in instructions)

    def needs_check(self, instructions: Sequence[Any], opts_in: bool) -> bool:
        """Some do not lower or exceed the limit of static shared memory. Only they are checked,
        since the check takes longer than all other steps."""
        kinds = {inst.kind.name for inst in instructions}
        is_odd = opts_in and ("ReadAt" in kinds or any("shared" in inst.attrs for inst in instructions))
        return is_odd or not kinds.intersection(TILES)

    def can_run(self, module: Any, target: Any) -> bool:
        return cuda_rules.can_launch(module, target)

    def compile_module(
        self, module: Any, target: Any, instruments: Sequence[Any], **options: Any
    ) -> tuple[Any, Sequence[Any]]:
        compiled = compile_for_cuda(module, target, instruments, **options)
        return compiled.library, compiled.kernels

    def generated_code(self, module: Any, target: Any) -> str:
        """Return PTX."""
        return "\n".join(code.ptx for code in compile_for_cuda(module, target).codes)

    def compiler(self, target: Any) -> AbstractContextManager[Any]:
        return collect_device_code(target)

    def build_probes(self, target_text: str, folder: str) -> list[Probe]:
        return build_cuda_probes(target_text, folder)
