"""A filter for valid new candidates, and random ones to fill a batch."""

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from mallorn.core.outcomes import Outcome
from searchers.base import DEFAULT, RANDOM, Proposal, Trial, means_of
from searchers.space import Candidate, Space

DRAW = 256  # candidates drawn at once
PATIENCE = 8  # draws in a row without anything new before the space counts as exhausted
MOST_LOST = 3  # then it is the candidate's own doing, as with rounds
UNDECIDED = frozenset({Outcome.WORKER_LOST, Outcome.WITHDRAWN})  # nothing is known of the candidate
MAX_INVALID = 4096  # invalid candidates in a row before the search for a valid one is given up


class Filter:
    """Lets each candidate pass once, if it is not in `history` and the space can rebuild it.

    What hosts ended there may pass again, MOST_LOST times in all, and what was withdrawn at any time.
    """

    def __init__(self, space: Space, history: Sequence[Trial]) -> None:
        self._space = space
        known = {trial.candidate for trial in history if trial.outcome not in UNDECIDED}
        self._seen = known | {candidate for candidate, times in lost(history).items() if times >= MOST_LOST}

    def fresh(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """The distinct candidates that were neither measured nor asked about, in order."""
        return [candidate for candidate in dict.fromkeys(candidates) if candidate not in self._seen]

    def valid(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """The fresh candidates that are valid. After that they are not fresh any more."""
        asked = self.fresh(candidates)
        self._seen.update(asked)
        answers = self._space.valid(asked) if asked else []
        return [candidate for candidate, good in zip(asked, answers, strict=True) if good]

    def pass_over(self, candidates: Iterable[Candidate]) -> None:
        """Exclude these candidates from now on."""
        self._seen.update(candidates)


def lost(history: Iterable[Trial]) -> Counter[Candidate]:
    """How often a host ended each of these before anything was known of it."""
    return Counter(trial.candidate for trial in history if trial.outcome is Outcome.WORKER_LOST)


def take(sieve: Filter, candidates: Sequence[Candidate], count: int, origin: str) -> list[Proposal]:
    """The first `count` valid candidates, checking no more at a time than are missing."""
    taken: list[Proposal] = []
    rest = sieve.fresh(candidates)
    while rest and len(taken) < count:
        asked, rest = rest[: count - len(taken)], rest[count - len(taken) :]
        taken += [Proposal(candidate, None, origin) for candidate in sieve.valid(asked)]
    return taken


def defaults_first(space: Space, history: Sequence[Trial], sieve: Filter, count: int) -> list[Proposal]:
    """The space's defaults if nothing was measured yet, else those of them that were lost or withdrawn."""
    is_first = not was_tried(history)
    withdrawn = (trial for trial in history if trial.outcome is Outcome.WITHDRAWN)
    guessed = [trial.candidate for trial in withdrawn if means_of(trial.origin) == DEFAULT]
    again = set(sieve.fresh([*lost(history), *guessed]))
    guesses = space.defaults() if again or is_first else []
    return take(sieve, [each for each in guesses if is_first or each in again], count, DEFAULT)


def was_tried(history: Iterable[Trial]) -> bool:
    """Whether any candidate was tried; a withdrawn one counts as untried."""
    return any(trial.outcome is not Outcome.WITHDRAWN for trial in history)


def pending(batch: Sequence[Proposal]) -> list[Trial]:
    """The batch so far as a history without results, for a searcher that fills the rest."""
    return [Trial(proposal.candidate, Outcome.CANCELLED, None, proposal.origin) for proposal in batch]


def random_fill(space: Space, sieve: Filter, count: int, rng: np.random.Generator) -> list[Proposal]:
    """`count` random valid candidates, spread over the sketches; fewer only when the space has no more."""
    taken: list[Proposal] = []
    barren = invalid = 0
    while len(taken) < count and barren < PATIENCE and invalid < MAX_INVALID:
        drawn = space.sample(rng, DRAW)
        fresh = sieve.fresh(drawn if not barren else [*drawn, *space.mutate_all(rng, drawn)])
        found = take(sieve, fresh, count - len(taken), RANDOM)
        taken += found
        barren = 0 if fresh else barren + 1
        invalid = 0 if found else invalid + len(fresh)
    return taken
