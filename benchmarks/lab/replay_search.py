"""Run searches on recorded tasks, whose best candidate is known, to compare searchers."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from time import perf_counter
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mallorn.core.errors import NotFound
from mallorn.costmodels.base import CostModel
from mallorn.searchers.base import DEFAULT, RANDOM, Proposal, Searcher, Trial, proposal_method_of
from mallorn.searchers.decision_features import decision_rows, places_by_sketch
from mallorn.searchers.decision_space import DecisionSpace
from mallorn.searchers.pooled_searcher import Request
from mallorn.searchers.space import Candidate, Sketch, Space
from mallorn.searchers.synthetic_space import fit_on_history
from mallorn_research.replay.recording_file import RecordedTask
from mallorn_research.searchers.decision_vector_encoding import Points, genes_of

FAR: Final = np.inf
BLOCK: Final = 1024  # candidates compared at once, so that distances stay in the CPU cache
MAX_DEFAULTS: Final = 12
# Share of a sample that is drawn uniformly, so that every recorded candidate is reachable.
EVEN_SHARE: Final = 0.25


class Neighbours:
    """Finds the nearest recorded candidates of one sketch (trace with open decisions)."""

    def __init__(self, sketch: Sketch, candidates: Sequence[Candidate]) -> None:
        self.candidates = tuple(candidates)
        self._sketch = sketch
        self._lines = {candidate: line for line, candidate in enumerate(self.candidates)}
        self._points = self._encode(self.candidates)
        self._squares = (self._points**2).sum(axis=1)

    def nearest(
        self, candidates: Sequence[Candidate], but: Sequence[Candidate | None] = ()
    ) -> list[Candidate]:
        """Return, for each candidate, the nearest recorded one that is not its `but` entry.

        Of equally near ones the first measured is taken. `but` is ignored if only one is
        recorded.
        """
        neighbours: list[Candidate] = []
        for start in range(0, len(candidates), BLOCK):
            distances = self.distances(candidates[start : start + BLOCK])
            excluded = but[start : start + BLOCK] if len(self.candidates) > 1 else ()
            for row, candidate in enumerate(excluded):
                if candidate is not None and (line := self._lines.get(candidate)) is not None:
                    distances[row, line] = FAR
            neighbours += [self.candidates[line] for line in distances.argmin(axis=1)]
        return neighbours

    def nearest_of(self, free: Container[Candidate], candidate: Candidate) -> Candidate | None:
        """Return the candidate in `free` nearest to `candidate`; None if there is none."""
        order = np.argsort(self.distances([candidate])[0], kind="stable")
        return next((self.candidates[line] for line in order if self.candidates[line] in free), None)

    def distances(self, candidates: Sequence[Candidate]) -> NDArray[np.float64]:
        """Return squared distances: a row per candidate, a column per recorded candidate."""
        points = self._encode(candidates)
        products = points @ self._points.T
        return np.asarray((points**2).sum(axis=1)[:, None] + self._squares - 2.0 * products)

    def _encode(self, candidates: Sequence[Candidate]) -> Points:
        rows = decision_rows(self._sketch, candidates, range(len(candidates)))
        return genes_of(self._sketch).encode(rows)


class RecordedSpace(DecisionSpace):
    """Search space that contains only the recorded candidates of one task.

    Samples, mutations and crossovers of the full space are replaced by the nearest recorded
    candidates. So mutations change more, isolated candidates are drawn more often, and most
    candidates are good: results compare searchers with each other, not with real searches.
    """

    def __init__(self, task: RecordedTask) -> None:
        super().__init__(task.sketches, task.descriptors, task.machine)
        self.task = task
        self._trials = {trial.candidate: trial for trial in task.trials}
        self.candidates = tuple(self._trials)  # in the order of measurement
        self._neighbours = {
            name: Neighbours(self.by_key[name], [self.candidates[line] for line in lines])
            for name, lines in places_by_sketch([candidate.sketch for candidate in self.candidates]).items()
        }

    @property
    def optimum_us(self) -> float:
        """The lowest recorded latency. Raises NotFound if no candidate was ever timed."""
        if (optimum := self.task.optimum_us) is None:
            message = f"every recorded candidate of {self.task.name} failed"
            raise NotFound(message, hint="mallorn record MODEL.onnx")
        return optimum

    def measure(self, candidate: Candidate) -> Trial:
        """Return the recorded result. Raises NotFound if the candidate was not recorded."""
        if (trial := self._trials.get(candidate)) is None:
            message = f"{candidate} of {self.task.name} is not in the recording"
            raise NotFound(message, hint="mallorn record MODEL.onnx")
        return replace(trial, origin="")  # the caller sets this search's origin

    def sample(self, rng: np.random.Generator, count: int) -> list[Candidate]:
        recorded = self.nearest(super().sample(rng, count))
        is_uniform = rng.random(count) < EVEN_SHARE
        lines = rng.integers(len(self.candidates), size=count)
        return [
            self.candidates[line] if uniform else candidate
            for candidate, uniform, line in zip(recorded, is_uniform, lines, strict=True)
        ]

    def mutate_all(self, rng: np.random.Generator, parents: Sequence[Candidate]) -> list[Candidate]:
        return self.nearest(super().mutate_all(rng, parents), but=parents)

    def cross_all(
        self, rng: np.random.Generator, mothers: Sequence[Candidate], fathers: Sequence[Candidate]
    ) -> list[Candidate]:
        return self.nearest(super().cross_all(rng, mothers, fathers))

    def defaults(self) -> list[Candidate]:
        """Return the recorded default schedules, otherwise the first timed candidates."""
        trials = self.task.trials
        defaults = [trial.candidate for trial in trials if proposal_method_of(trial.origin) == DEFAULT]
        successes = [trial.candidate for trial in trials if trial.latency_us is not None]
        return (defaults or successes)[:MAX_DEFAULTS]

    def valid(self, candidates: Sequence[Candidate]) -> list[bool]:
        return [candidate in self._trials for candidate in candidates]

    def nearest(self, candidates: Sequence[Candidate], but: Sequence[Candidate] = ()) -> list[Candidate]:
        """Return each candidate's nearest recorded one, other than its entry in `but`."""
        neighbours = list(candidates)
        for name, lines in places_by_sketch([candidate.sketch for candidate in candidates]).items():
            avoided = [but[line] for line in lines] if but else []
            recorded = self._neighbours[name].nearest([candidates[line] for line in lines], avoided)
            for line, candidate in zip(lines, recorded, strict=True):
                neighbours[line] = candidate
        return neighbours

    def nearest_of(self, free: Container[Candidate], candidate: Candidate) -> Candidate | None:
        """Return the nearest candidate of its sketch in `free`; None if there is none."""
        return self._neighbours[candidate.sketch].nearest_of(free, candidate)


class LooseSpace(RecordedSpace):
    """RecordedSpace in which `valid` accepts any well-formed candidate, recorded or not."""

    def valid(self, candidates: Sequence[Candidate]) -> list[bool]:
        return self.well_formed(candidates)


class WideSpace(DecisionSpace):
    """The full search space of a recorded task, which includes unrecorded candidates."""

    def __init__(self, recorded: RecordedSpace) -> None:
        task = recorded.task
        super().__init__(task.sketches, task.descriptors, task.machine)
        self._defaults = recorded.defaults()

    def defaults(self) -> list[Candidate]:
        return list(self._defaults)

    def valid(self, candidates: Sequence[Candidate]) -> list[bool]:
        return self.well_formed(candidates)


def propose_recorded(searcher: Searcher, request: Request, space: RecordedSpace) -> list[Proposal]:
    """Ask a searcher for proposals, and replace them by the nearest recorded candidates.

    Returns distinct candidates outside the history: the requested number, or all left.
    """
    recorded = RecordedProposals(space, request.history)
    count = min(request.count, recorded.left)
    proposals = recorded.move_to_free_candidates(
        searcher.propose(request.space, request.history, request.model, count, request.rng)
    )
    return proposals + recorded.fill(count - len(proposals), request.rng)


class RecordedProposals:
    """The recorded candidates that a search has not measured yet (free candidates)."""

    def __init__(self, space: RecordedSpace, history: Sequence[Trial]) -> None:
        self._space = space
        known = {trial.candidate for trial in history}
        self._free = dict.fromkeys(candidate for candidate in space.candidates if candidate not in known)

    @property
    def left(self) -> int:
        return len(self._free)

    def move_to_free_candidates(self, proposals: Sequence[Proposal]) -> list[Proposal]:
        """Replace each proposal whose candidate is not free by the nearest free candidate.

        Such a proposal loses its prediction, and is dropped if no candidate of its sketch
        is free.
        """
        exact = {proposal.candidate for proposal in proposals if proposal.candidate in self._free}
        for candidate in exact:
            del self._free[candidate]
        recorded: list[Proposal] = []
        for proposal in proposals:
            if proposal.candidate in exact:
                recorded.append(proposal)
            elif (nearest := self._space.nearest_of(self._free, proposal.candidate)) is not None:
                del self._free[nearest]
                recorded.append(replace(proposal, candidate=nearest, predicted=None))
        return recorded

    def fill(self, count: int, rng: np.random.Generator) -> list[Proposal]:
        """Return up to `count` proposals of random free candidates."""
        free = list(self._free)
        return [Proposal(free[line], None, RANDOM) for line in rng.permutation(len(free))[:count]]


class ShownSpace(StrEnum):
    """Selects whether a searcher sees only recorded candidates or a task's full space."""

    RECORDED = "recorded"  # mutations and samples give recorded candidates
    WIDE = "wide"  # the full space; proposals are moved to recorded candidates


class Arena(ABC):
    """A search space of known optimum for a test search; a lookup or formula gives times."""

    def __init__(self, kind: str, name: str, space: Space, optimum_us: float) -> None:
        self.kind = kind
        self.name = name
        self.space = space  # the space that searcher and model are given
        self.optimum_us = optimum_us

    @abstractmethod
    def measure(self, candidate: Candidate) -> Trial:
        """Return the result of a candidate."""

    def propose(self, searcher: Searcher, request: Request) -> list[Proposal]:
        return searcher.propose(request.space, request.history, request.model, request.count, request.rng)


class RecordedArena(Arena):
    """Test search on a recorded task; proposals become the nearest recorded candidates."""

    def __init__(self, task: RecordedTask, view: ShownSpace) -> None:
        self.recorded = RecordedSpace(task)
        space = LooseSpace(task) if view is ShownSpace.RECORDED else WideSpace(self.recorded)
        name = f"{task.name} {task.workload[:8]}"  # task names may repeat between models
        super().__init__(str(view), name, space, self.recorded.optimum_us)

    def measure(self, candidate: Candidate) -> Trial:
        return self.recorded.measure(candidate)

    def propose(self, searcher: Searcher, request: Request) -> list[Proposal]:
        return propose_recorded(searcher, request, self.recorded)


MakeModel = Callable[[], CostModel]


@dataclass(frozen=True, slots=True)
class PlayedSearch:
    """A finished search: its trials, and seconds spent on proposals and on fits."""

    trials: tuple[Trial, ...]
    optimum_us: float
    propose_sec: float
    fit_sec: float

    @property
    def curve(self) -> list[float]:
        """Best latency after each trial, divided by the optimum; infinite if all failed."""
        times = np.array([np.inf if t.latency_us is None else t.latency_us for t in self.trials])
        curve: list[float] = (np.minimum.accumulate(times) / self.optimum_us).tolist()
        return curve


def play(
    arena: Arena, searcher: Searcher, make_model: MakeModel | None, *, trials: int, round_size: int, seed: int
) -> PlayedSearch:
    """Run a search: fit, propose, measure, until `trials` are done or none is proposed."""
    history: list[Trial] = []
    propose_sec = fit_sec = 0.0
    while len(history) < trials:
        start = perf_counter()
        model = fit_on_history(arena.space, history, make_model, seed) if make_model and history else None
        fit_end = perf_counter()
        rng = np.random.default_rng([seed, len(history)])
        request = Request(arena.space, history, model, min(round_size, trials - len(history)), rng)
        proposals = arena.propose(searcher, request)
        fit_sec += fit_end - start
        propose_sec += perf_counter() - fit_end
        if not proposals:
            break
        for proposal in proposals:
            history.append(replace(arena.measure(proposal.candidate), origin=proposal.origin))
    return PlayedSearch(tuple(history), arena.optimum_us, propose_sec, fit_sec)
