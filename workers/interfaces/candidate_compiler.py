# mypy: disable-error-code="empty-body"
"""Child process that derives, validates, lowers and builds candidates of tensor programs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mallorn.costmodels.views import VIEWS
from mallorn.searchers.loop_nest import Nest
from mallorn.searchers.space import Sketch
from mallorn.workers.interfaces.hardware_probes import Probe
from mallorn.workers.interfaces.tensor_arguments import Tensor
from mallorn.workers.subprocesses.child_process import Child
from mallorn.workers.subprocesses.typed_method import Given, method

Candidates = Sequence[tuple[str, Sequence[int]]]  # (trace of the sketch, decisions)
Validate = Callable[[str, str, Candidates], list[bool]]  # as CandidateCompiler.validate


@dataclass(frozen=True, slots=True)
class Library:
    """A candidate's compiled library: its build time, size, arguments and kernels."""

    build_ms: float
    bytes: int
    args: tuple[Tensor, ...]  # as the program's, except weights re-laid for the schedule
    kernels: tuple[Mapping[str, int | str], ...] = ()  # ptxas's figures of each kernel, see KernelFigures


def _limit_per_candidate(first_sec: float, each_sec: float) -> Callable[[Given], float]:
    return lambda given: first_sec + each_sec * len(given["candidates"])


def _limit_for_lowering(given: Given) -> float:
    """Return the time limit of `lowered`, a tenth for views that need no generated code."""
    return _limit_per_candidate(30.0, 30.0 if VIEWS[given["view"]].needs_code else 3.0)(given)


class CandidateCompiler(Child):
    """Child process that compiles candidates of a program for a target. Programs are passed
    as ``tvm.ir.save_json`` text, targets as canonical text. For an invalid candidate,
    methods return False or None, and `build` raises InvalidRequest."""

    MODULE = "mallorn.workers.tvm.candidate_compiler_child"
    SPAWNS = True

    @method(limit_sec=20.0)
    def vector_lanes(self, target: str) -> int:
        """Return the number of 32-bit lanes in a vector register; 1 if not a CPU target."""

    @method(limit_sec=20.0)
    def sum_registers(self, target: str) -> int:
        """Return the number of a CPU's vector registers that can hold sums."""

    @method(limit_sec=120.0)
    def design_space(self, tir: str, target: str) -> list[Sketch]:
        """Return a program's sketches, in TVM's order and the same in every process."""

    @method(limit_sec=20.0)
    def nests(self, tir: str) -> list[Nest]:
        """Return the loop nest and buffer accesses of each block of a program."""

    @method(limit_sec=_limit_per_candidate(20.0, 1.0))
    def validate(self, tir: str, target: str, candidates: Candidates) -> list[bool]:
        """Return for each candidate whether its decisions yield a valid program."""

    @method(limit_sec=120.0)
    def full_trace(self, tir: str, target: str, trace: str, decisions: Sequence[int]) -> str | None:
        """Return the trace with decisions and postprocessing, as JSON; None if invalid."""

    @method(limit_sec=_limit_for_lowering)
    def compute_lowered_features(
        self, view: str, tir: str, target: str, candidates: Candidates
    ) -> list[bytes | None]:
        """Return each candidate's features, as little-endian floats; None if invalid."""

    @method(limit_sec=120.0)
    def build_probes(self, target: str, folder: str) -> list[Probe]:
        """Compile a target's hardware probes to libraries in `folder`."""

    @method(limit_sec=120.0)
    def build_one_probe(self, target: str, folder: str) -> Probe:
        """Compile one hardware probe: float32 products in the widest vectors, on one core."""

    @method(limit_sec=120.0)
    def build(
        self,
        tir: str,
        target: str,
        trace: str,
        decisions: Sequence[int],
        out_path: str,
        any_size: bool = False,
    ) -> Library:
        """Compile a candidate to a library at `out_path`. Unless `any_size` is set, raises
        InvalidRequest if the code is many times as large as the program's other candidates'."""
