"""The contract of a kind of hardware in processes that schedule and compile programs for it."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from mallorn.core.targets import Target
from mallorn.graphc.export.code_generation import compile_to_library
from mallorn.workers.interfaces.hardware_probes import Probe


class CompilerKind:
    """How programs of a kind of hardware are scheduled and compiled; here by LLVM for a CPU.

    `module` is a scheduled module, `target` TVM's, unless a text is meant (`target_text`).
    """

    #: Modules that register the instructions and schedule rules of its candidates.
    intrinsics: Sequence[str] = ()
    #: Whether it has kinds of sketches of its own, so that MetaSchedule's rules may all fail.
    has_own_sketches = False
    #: Whether its compiler's time grows exponentially with unrolled maxima.
    limits_extrema = True

    def design_spaces(self, target: Any) -> Sequence[tuple[Any, Any]]:
        """Return the targets and space generators that make sketches; none: MetaSchedule's own."""
        return ()

    def is_of_further_space(self, trace: str) -> bool:
        """Return whether a trace of a design space after the first is kept."""
        return True

    def own_schedules(self, module: Any, space_target: Any, target: Any) -> Iterator[Any]:
        """Yield schedules of its own kinds of sketches for a module that is not scheduled.
        `space_target` is the target of its first design space."""
        yield from ()

    def opts_in(self, instructions: Sequence[Any], is_fixed: bool) -> bool:
        """Return whether a candidate is postprocessed under the limits of its first design
        space. `is_fixed` says that its sketch leaves no choice."""
        return False

    def needs_check(self, instructions: Sequence[Any], opts_in: bool) -> bool:
        """Return whether `can_run` must be asked of a candidate that was postprocessed."""
        return False

    def can_run(self, module: Any, target: Any) -> bool:
        """Return whether a scheduled module lowers to programs that fit the hardware."""
        return True

    def compile_module(
        self, module: Any, target: Any, instruments: Sequence[Any], **options: Any
    ) -> tuple[Any, Sequence[Any]]:
        """Compile a scheduled module; return the library, and figures of its kernels (dataclasses).
        Raises InvalidRequest if the hardware cannot run it, HostFault without a compiler."""
        return compile_to_library(module, target, instruments, **options), ()

    def generated_code(self, module: Any, target: Any) -> str:
        """Return the text of the code that a scheduled module compiles to."""
        return str(compile_to_library(module, target).inspect_source("asm"))

    def compiler(self, target: Any) -> AbstractContextManager[Any]:
        """Return a context in which TVM compiles for the target; it raises as `compile_module`."""
        return nullcontext()

    def build_probes(self, target_text: str, folder: str) -> list[Probe]:
        """Write libraries of hardware probes into `folder`, and return the probes."""
        return []


def compiler_kind(target_text: str) -> CompilerKind:
    return Target(target_text).hardware.part(CompilerKind)
