# mypy: disable-error-code="empty-body"
"""The process that knows the candidates of a program: their sketches, validity, traces and libraries."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from costmodels.views import STATEMENTS
from searchers.loop_nest import Nest
from searchers.space import Sketch
from workers.interfaces.hardware_probes import Probe
from workers.interfaces.tensor_arguments import Tensor
from workers.subprocesses.child_process import Child
from workers.subprocesses.typed_method import Given, method

Candidates = Sequence[tuple[str, Sequence[int]]]  # of each the trace of its sketch, and its decisions
Validate = Callable[[str, str, Candidates], list[bool]]  # as Compiler.validate, whoever answers


@dataclass(frozen=True, slots=True)
class Library:
    """What became of building a candidate."""

    build_ms: float
    bytes: int
    args: tuple[Tensor, ...]  # as the program's, but for weights in the layout that the schedule wants


def _each(first_sec: float, each_sec: float) -> Callable[[Given], float]:
    """A limit for many candidates: so long for the program and its context, and so long for each."""
    return lambda given: first_sec + each_sec * len(given["candidates"])


def _lowering(given: Given) -> float:
    """Statements are extracted in a tenth of the time that generated code takes."""
    return _each(30.0, 3.0 if given["view"] == STATEMENTS.name else 30.0)(given)


class CandidateCompiler(Child):
    """Answers about programs, given as `tvm.ir.save_json` has them, on targets in canonical text.

    A candidate that makes no program is a False or None here, and an InvalidRequest from `build`.
    """

    MODULE = "workers.tvm.candidate_compiler_child"
    SPAWNS = True

    @method(limit_sec=20.0)
    def vector_lanes(self, target: str) -> int:
        """How many 32-bit numbers a vector register of the target holds; 1 where it is no CPU."""

    @method(limit_sec=120.0)
    def design_space(self, tir: str, target: str) -> list[Sketch]:
        """The sketches of a program in TVM's order, alike in every process."""

    @method(limit_sec=20.0)
    def nests(self, tir: str) -> list[Nest]:
        """The loops of a program's blocks, and what they touch."""

    @method(limit_sec=_each(20.0, 1.0))
    def validate(self, tir: str, target: str, candidates: Candidates) -> list[bool]:
        """Whether each candidate can be rebuilt."""

    @method(limit_sec=120.0)
    def full_trace(self, tir: str, target: str, trace: str, decisions: Sequence[int]) -> str | None:
        """The trace with decisions and postprocessing, as JSON for a tuning record; None if invalid."""

    @method(limit_sec=_lowering)
    def lowered(self, view: str, tir: str, target: str, candidates: Candidates) -> list[bytes | None]:
        """For each candidate its row of a lowered view, in little-endian floats; None if it is invalid."""

    @method(limit_sec=120.0)
    def build_probes(self, target: str, folder: str) -> list[Probe]:
        """Compile the probes of a CPU target's machine to libraries in `folder`; what to call in them."""

    @method(limit_sec=120.0)
    def build_one_probe(self, target: str, folder: str) -> Probe:
        """The same of one product in the target's widest vectors."""

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
        """Compile a candidate to a library at `out_path`.

        Without `any_size`, one that comes out many times as large as others of its program is refused.
        """
