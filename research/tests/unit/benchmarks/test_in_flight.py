"""Rounds in flight: what a search knows of them, and how its figures are counted."""

from collections.abc import Sequence

import numpy as np
import pytest

from benchmarks.in_flight import HEADLINE, cells, summarise
from benchmarks.lab.cells import BATCH
from benchmarks.lab.rounds_in_flight import (
    AHEAD,
    KNOWN,
    LATER,
    PREDICTED,
    UNKNOWN,
    Cell,
    Finished,
    fit,
    play,
)
from benchmarks.lab.synthetic_arena import SyntheticArena
from mallorn.core.outcomes import Outcome
from mallorn.costmodels.base import CostModel, Groups, Matrix, Prediction, Vector
from mallorn.searchers.base import RANDOM, Proposal, Trial
from mallorn.searchers.fill_round import as_pending_trials
from mallorn.searchers.pooled_searcher import Request
from mallorn.searchers.space import Candidate

SHAPE = (64, 64, 64)
ROUNDS = 6


class WatchedArena(SyntheticArena):
    """Remembers the history with which each round was proposed, and its proposals."""

    def __init__(self) -> None:
        super().__init__(*SHAPE)
        self.histories: list[Sequence[Trial]] = []
        self.rounds: list[list[Candidate]] = []

    def propose(self, searcher: object, request: Request) -> list[Proposal]:
        proposals = super().propose(searcher, request)  # type: ignore[arg-type]
        self.histories.append(request.history)
        self.rounds.append([each.candidate for each in proposals])
        return proposals

    def known_rounds(self, number: int) -> tuple[set[int], set[int]]:
        """Return the rounds with results and those in flight, as round `number` knew them."""
        measured: set[int] = set()
        pending: set[int] = set()
        for trial in self.histories[number]:
            owner = next(i for i, candidates in enumerate(self.rounds) if trial.candidate in candidates)
            (pending if trial.outcome is Outcome.CANCELLED else measured).add(owner)
        return measured, pending


class WatchedModel(CostModel):
    """Remembers the labels that the last fit was given; predicts -1."""

    fitted = np.empty(0, dtype=np.float32)

    def fit(self, features: Matrix, labels: Vector, groups: Groups, *, seed: int) -> None:
        self.fitted = labels

    def predict(self, features: Matrix) -> Prediction:
        mean = np.full(len(features), -1, dtype=np.float32)
        return Prediction(mean, np.ones_like(mean))

    def save(self) -> bytes:
        raise NotImplementedError

    @classmethod
    def load(cls, blob: bytes) -> "WatchedModel":
        raise NotImplementedError


def cell(way: str, in_flight: int, search: str = RANDOM) -> Cell:
    return Cell("64x64x64", search, way, in_flight, 0, ROUNDS * BATCH)


@pytest.mark.parametrize(
    ("way", "measured", "pending"),
    [
        (KNOWN, {0, 1}, {2, 3}),
        (UNKNOWN, {0, 1}, set()),
        (AHEAD, {0, 1}, {2, 3}),
        (LATER, {0, 1}, {2, 3}),
    ],
)
def test_the_fifth_round_lacks_the_results_of_the_two_rounds_before_it(
    way: str, measured: set[int], pending: set[int]
) -> None:
    arena = WatchedArena()
    play(arena, cell(way, 3))
    assert arena.known_rounds(4) == (measured, pending)


@pytest.mark.parametrize(("way", "measured"), [(KNOWN, set()), (LATER, {0})])
def test_only_the_way_later_waits_for_the_first_round(way: str, measured: set[int]) -> None:
    arena = WatchedArena()
    play(arena, cell(way, 3))
    assert arena.known_rounds(1)[0] == measured


@pytest.mark.parametrize(("way", "outcome"), [(KNOWN, Outcome.CANCELLED), (AHEAD, Outcome.OK)])
def test_the_newest_trials_of_the_way_ahead_are_measured_ones(way: str, outcome: Outcome) -> None:
    arena = WatchedArena()
    play(arena, cell(way, 3))
    newest = [trial for trial in arena.histories[4] if trial.outcome in (Outcome.OK, Outcome.CANCELLED)]
    assert newest[-1].outcome is outcome


def test_chance_finds_the_same_however_many_known_rounds_are_in_flight() -> None:
    one, four = (play(SyntheticArena(*SHAPE), cell(KNOWN, number)) for number in (1, 4))
    assert (one.steps, one.slots) == (four.steps, four.slots)


def test_a_candidate_that_is_in_flight_already_wastes_its_slot() -> None:
    arena = WatchedArena()
    unknown = play(arena, cell(UNKNOWN, 2))
    candidates = [candidate for round_ in arena.rounds for candidate in round_]
    assert unknown.duplicates == len(candidates) - len(set(candidates)) > 0
    assert play(SyntheticArena(*SHAPE), cell(KNOWN, 2)).duplicates == 0


@pytest.mark.parametrize(("way", "assumed"), [(KNOWN, []), (PREDICTED, [-1.0, -1.0])])
def test_the_way_predicted_fits_the_model_to_its_own_predictions_of_pending_trials(
    way: str, assumed: list[float]
) -> None:
    space = SyntheticArena(*SHAPE).space
    rng = np.random.default_rng(0)
    first, *others = space.sample(rng, 3)
    history = [Trial(first, Outcome.OK, 5.0)]
    pending = as_pending_trials([Proposal(other, None, RANDOM) for other in others])
    model = fit(space, history, pending, WatchedModel, cell(way, 2))
    assert isinstance(model, WatchedModel)
    assert model.fitted.tolist() == [0.0, *assumed]


@pytest.mark.parametrize(
    ("way", "slot", "times"),
    [(KNOWN, 16, 1), (KNOWN, 32, 1), (KNOWN, 33, 2), (LATER, 16, 1), (LATER, 48, 2), (LATER, 49, 3)],
)
def test_two_rounds_in_flight_take_one_round_time(way: str, slot: int, times: int) -> None:
    assert Finished(cell(way, 2), 96, 0, ((slot, 1.0),)).round_times == times


def test_a_trial_is_worth_less_if_more_of_them_are_needed() -> None:
    searches = cells(2, ["64x1000x100"])
    finished = [Finished(each, each.trials, 0, ((16 * each.in_flight, 1.0),)) for each in searches]
    rows = {row.in_flight: row for row in summarise(finished) if (row.group, row.search, row.way) == HEADLINE}
    assert [(number, rows[number].worth.mean) for number in (2, 4, 8)] == [(2, 0.5), (4, 0.25), (8, 0.125)]
