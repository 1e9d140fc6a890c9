"""A program's search space of MetaSchedule's sketches; a child process checks candidates."""

from collections.abc import Callable, Collection, Sequence
from functools import cached_property

import numpy as np

from mallorn.core.targets import Target
from mallorn.core.values.machine import Machine, MachineKind
from mallorn.costmodels.base import Matrix
from mallorn.costmodels.views import VIEWS
from mallorn.searchers.decision_space import DecisionSpace
from mallorn.searchers.loop_nest import Nest
from mallorn.searchers.roller.rank_candidates import ranked
from mallorn.searchers.space import Candidate, Sketch
from mallorn.workers.interfaces.candidate_compiler import CandidateCompiler, Validate
from mallorn.workers.measure.measurer_interface import Program
from mallorn.workers.subprocesses.errors import ChildCrashed, ChildTimeout

See = Callable[[str, Sequence[Candidate]], Matrix]  # rows of candidates in a lowered view
FindTried = Callable[[Sequence[Candidate]], Collection[Candidate]]  # those that were tried before

_MAX_DEFAULTS = 12
_DRAW, _MAX_DRAWS = 16, 16


class TvmSpace(DecisionSpace):
    """The space of all candidates of one program on one target."""

    def __init__(
        self,
        sketches: Sequence[Sketch],
        program: Program,
        target: Target,
        descriptors: Sequence[float],
        compiler: CandidateCompiler,
        machine: Machine | None = None,
        validate: Validate | None = None,
        see: See | None = None,
        find_tried: FindTried | None = None,
    ) -> None:
        """`find_tried` is needed if the searcher knows a part of the task's history."""
        super().__init__(sketches, descriptors, machine or assume_machine(target, compiler))
        self._program = program
        self._target = target
        self._compiler = compiler
        self._validate: Validate = validate or compiler.validate
        self._see = see
        self._find_tried = find_tried

    @cached_property
    def nests(self) -> Sequence[Nest]:
        try:
            return self._compiler.nests(self._program.tir)
        except (ChildCrashed, ChildTimeout):
            return ()

    def features_in_view(self, view: str, candidates: Sequence[Candidate]) -> Matrix:
        if self._see is not None and VIEWS[view].lowered:
            return self._see(view, candidates)
        return super().features_in_view(view, candidates)

    def valid(self, candidates: Sequence[Candidate]) -> list[bool]:
        """Return which are new and can be built; one that crashes the child cannot."""
        if not candidates:
            return []
        if self._find_tried is not None and (tried := self._find_tried(candidates)):
            new = [candidate for candidate in candidates if candidate not in tried]
            valid = dict(zip(new, self._can_be_built(new), strict=True))
            return [valid.get(candidate, False) for candidate in candidates]
        return self._can_be_built(candidates)

    def _can_be_built(self, candidates: Sequence[Candidate]) -> list[bool]:
        if not candidates:
            return []
        traced = [(self.by_key[c.sketch].trace, c.decisions) for c in candidates]
        try:
            return self._validate(self._program.tir, self._target.text, traced)
        except (ChildCrashed, ChildTimeout):
            if len(candidates) == 1:
                return [False]
            return [answer for candidate in candidates for answer in self._can_be_built([candidate])]

    def defaults(self) -> list[Candidate]:
        return list(self._defaults)

    @cached_property
    def _defaults(self) -> list[Candidate]:
        return self.likeliest(_MAX_DEFAULTS)

    def likeliest(self, count: int) -> list[Candidate]:
        """Return the first `count` valid default candidates, and check no more than needed.
        If no default is valid, return random valid candidates."""
        guesses = ranked(self.sketches, self.nests, self.machine, _MAX_DEFAULTS)
        defaults: list[Candidate] = []
        while guesses and len(defaults) < count:
            shortfall = count - len(defaults)
            defaults += self._only_valid(guesses[:shortfall])
            guesses = guesses[shortfall:]
        if defaults:
            return defaults
        rng = np.random.default_rng(0)
        for _ in range(_MAX_DRAWS):
            if samples := self._only_valid(self.sample(rng, _DRAW)):
                return samples[:count]
        return []

    def _only_valid(self, candidates: list[Candidate]) -> list[Candidate]:
        return [c for c, good in zip(candidates, self.valid(candidates), strict=True) if good]


def assume_machine(target: Target, compiler: CandidateCompiler) -> Machine:
    """Return the peaks and caches to assume for a target until its machine is measured."""
    kind = target.hardware.part(MachineKind)
    if not target.runs_on_cores:
        return kind.assume_machine(target.attrs)
    lanes, registers = compiler.vector_lanes(target.text), compiler.sum_registers(target.text)
    return kind.assume_machine(target.attrs, lanes, registers)
