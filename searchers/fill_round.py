"""Filters valid, new candidates, and fills a round with defaults and random candidates."""

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from mallorn.core.outcomes import Outcome
from mallorn.searchers.base import DEFAULT, RANDOM, Proposal, Trial, proposal_method_of
from mallorn.searchers.space import Candidate, Space

DRAW = 256  # candidates drawn at once
PATIENCE = 8  # successive draws without a new candidate that mean an exhausted space
MOST_LOST = 3  # lost workers after which the candidate itself is assumed to be the cause
UNDECIDED = frozenset({Outcome.WORKER_LOST, Outcome.WITHDRAWN})  # no result for the candidate
MAX_INVALID = 4096  # successive invalid candidates after which `random_fill` gives up


class Filter:
    """Passes each candidate once, if it is valid in the space and not in `history`.
    Candidates with outcome WORKER_LOST may pass again until they were lost MOST_LOST times;
    candidates with outcome WITHDRAWN may always."""

    def __init__(self, space: Space, history: Sequence[Trial]) -> None:
        self._space = space
        candidates = {trial.candidate for trial in history if trial.outcome not in UNDECIDED}
        self._seen = candidates | {
            candidate for candidate, times in count_lost_trials(history).items() if times >= MOST_LOST
        }

    def fresh(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """Return the distinct candidates that were neither measured nor checked, in order."""
        return [candidate for candidate in dict.fromkeys(candidates) if candidate not in self._seen]

    def valid(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """Return the valid ones among fresh candidates; all of these then count as seen."""
        checked = self.fresh(candidates)
        self._seen.update(checked)
        answers = self._space.valid(checked) if checked else []
        return [candidate for candidate, good in zip(checked, answers, strict=True) if good]

    def exclude(self, candidates: Iterable[Candidate]) -> None:
        self._seen.update(candidates)


def count_lost_trials(history: Iterable[Trial]) -> Counter[Candidate]:
    """Count how often each candidate's trial ended with a lost worker."""
    return Counter(trial.candidate for trial in history if trial.outcome is Outcome.WORKER_LOST)


def propose_first_valid(
    candidate_filter: Filter, candidates: Sequence[Candidate], count: int, origin: str
) -> list[Proposal]:
    """Return the first `count` valid candidates, checking no more of them than needed."""
    proposals: list[Proposal] = []
    remaining = candidate_filter.fresh(candidates)
    while remaining and len(proposals) < count:
        chunk, remaining = remaining[: count - len(proposals)], remaining[count - len(proposals) :]
        proposals += [Proposal(candidate, None, origin) for candidate in candidate_filter.valid(chunk)]
    return proposals


def propose_defaults(
    space: Space, history: Sequence[Trial], candidate_filter: Filter, count: int
) -> list[Proposal]:
    """Return valid defaults: all if nothing was tried yet, else lost and withdrawn ones."""
    is_first = not was_tried(history)
    withdrawn = (trial for trial in history if trial.outcome is Outcome.WITHDRAWN)
    withdrawn_defaults = [
        trial.candidate for trial in withdrawn if proposal_method_of(trial.origin) == DEFAULT
    ]
    retried = set(candidate_filter.fresh([*count_lost_trials(history), *withdrawn_defaults]))
    guesses = space.defaults() if retried or is_first else []
    return propose_first_valid(
        candidate_filter, [guess for guess in guesses if is_first or guess in retried], count, DEFAULT
    )


def was_tried(history: Iterable[Trial]) -> bool:
    """Return whether any candidate was tried; a withdrawn one counts as untried."""
    return any(trial.outcome is not Outcome.WITHDRAWN for trial in history)


def as_pending_trials(proposals: Sequence[Proposal]) -> list[Trial]:
    """Return proposals as trials without results, for a searcher that fills the rest."""
    return [Trial(proposal.candidate, Outcome.CANCELLED, None, proposal.origin) for proposal in proposals]


def random_fill(
    space: Space, candidate_filter: Filter, count: int, rng: np.random.Generator
) -> list[Proposal]:
    """Return `count` random valid candidates of all sketches; fewer if the space ends."""
    proposals: list[Proposal] = []
    draws_without_new = invalid = 0
    while len(proposals) < count and draws_without_new < PATIENCE and invalid < MAX_INVALID:
        sample = space.sample(rng, DRAW)
        fresh = candidate_filter.fresh(
            sample if not draws_without_new else [*sample, *space.mutate_all(rng, sample)]
        )
        valid_proposals = propose_first_valid(candidate_filter, fresh, count - len(proposals), RANDOM)
        proposals += valid_proposals
        draws_without_new = 0 if fresh else draws_without_new + 1
        invalid = 0 if valid_proposals else invalid + len(fresh)
    return proposals
