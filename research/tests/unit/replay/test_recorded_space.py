"""A space of recorded candidates keeps the contract of spaces, and nothing unrecorded comes out of it."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.lab.replay_search import Neighbours, RecordedSpace
from mallorn.core.errors import NotFound
from mallorn.core.outcomes import Outcome
from mallorn.searchers.space import Candidate, Space
from mallorn.searchers.synthetic_space import RFACTOR, TILED, SyntheticSpace
from mallorn_research.searchers.decision_vector_encoding import genes_of
from research.tests.unit.replay.made_up import made_up
from tests.kits.spaces import SpaceTestCase

TASK = made_up()


class TestRecordedSpace(SpaceTestCase):
    """But for two clauses: the nearest recorded neighbour may differ from a step in more than one choice."""

    @pytest.fixture
    def make_space(self) -> Callable[[], Space]:
        return lambda: RecordedSpace(TASK)

    @pytest.mark.parametrize("seed", [0, 1, 2])
    def test_mutate_changes_exactly_one_choice(self, space: Space, seed: int) -> None:
        rng = np.random.default_rng(seed)
        parents = space.sample(rng, 60)
        children = [*space.mutate_all(rng, parents), space.mutate(rng, parents[0])]
        for parent, child in zip([*parents, parents[0]], children, strict=True):
            assert child != parent
            assert child.sketch == parent.sketch

    @pytest.mark.parametrize("seed", [0, 1, 2])
    def test_cross_takes_each_choice_from_a_parent(self, space: Space, seed: int) -> None:
        rng = np.random.default_rng(seed)
        mothers, fathers = space.sample(rng, 60), space.sample(rng, 60)
        children = space.cross_all(rng, mothers, fathers)
        assert [child.sketch for child in children] == [mother.sketch for mother in mothers]
        for mother, father, child in zip(mothers, fathers, children, strict=True):
            assert child == mother or mother.sketch == father.sketch


def test_draws_steps_and_children_are_all_recorded() -> None:
    space, rng = RecordedSpace(TASK), np.random.default_rng(0)
    known = {trial.candidate for trial in TASK.trials}
    drawn = space.sample(rng, 500)
    made = [*drawn, *space.mutate_all(rng, drawn), *space.cross_all(rng, drawn, drawn[::-1])]
    assert set(made) | set(space.defaults()) <= known
    assert all(space.valid(made))


def test_what_was_not_recorded_is_neither_valid_nor_answered() -> None:
    space = RecordedSpace(TASK)
    stranger = next(
        candidate
        for candidate in SyntheticSpace(64, 64, 64).sample(np.random.default_rng(99), 100)
        if candidate not in space.candidates
    )
    assert space.valid([stranger, space.candidates[0]]) == [False, True]
    with pytest.raises(NotFound, match="not in the recording"):
        space.measure(stranger)


def test_an_answer_is_what_was_recorded_failures_included() -> None:
    space = RecordedSpace(TASK)
    outcomes = {trial.outcome for trial in TASK.trials}
    assert Outcome.BUILD_ERROR in outcomes
    for trial in TASK.trials:
        answer = space.measure(trial.candidate)
        assert (answer.outcome, answer.latency_us, answer.build_ms) == (
            trial.outcome,
            trial.latency_us,
            trial.build_ms,
        )


def test_the_optimum_is_the_best_recorded_and_missing_where_everything_failed() -> None:
    best = min(trial.latency_us for trial in TASK.trials if trial.latency_us is not None)
    assert RecordedSpace(TASK).optimum_us == best
    failed = [replace(t, outcome=Outcome.RUN_ERROR, latency_us=None, run_us=()) for t in TASK.trials]
    with pytest.raises(NotFound, match="failed"):
        _ = RecordedSpace(replace(TASK, trials=tuple(failed))).optimum_us


def test_every_candidate_is_drawn_sooner_or_later() -> None:
    drawn = RecordedSpace(TASK).sample(np.random.default_rng(0), 20_000)
    assert set(drawn) == {trial.candidate for trial in TASK.trials}


def test_defaults_are_those_of_the_recording_and_else_what_worked_first() -> None:
    assert RecordedSpace(TASK).defaults() == [TASK.trials[0].candidate]
    unmarked = replace(TASK, trials=tuple(replace(trial, origin="random") for trial in TASK.trials))
    worked = [trial.candidate for trial in TASK.trials if trial.latency_us is not None]
    assert RecordedSpace(unmarked).defaults() == worked[:12]


def test_the_nearest_of_a_recorded_candidate_is_itself_unless_another_is_asked_for() -> None:
    space = RecordedSpace(TASK)
    asked = list(space.candidates)
    assert space.nearest(asked) == asked
    others = space.nearest(asked, but=asked)
    assert all(other != candidate for other, candidate in zip(others, asked, strict=True))


def test_nearest_is_least_in_distance_between_encoded_decisions() -> None:
    space = RecordedSpace(TASK)
    sketch = space.by_key[TILED]
    same = [candidate for candidate in space.candidates if candidate.sketch == TILED]
    asked = [c for c in SyntheticSpace(64, 64, 64).sample(np.random.default_rng(5), 40) if c.sketch == TILED]

    def points(candidates: list[Candidate]) -> np.ndarray:
        return genes_of(sketch).encode(np.array([c.decisions for c in candidates], dtype=np.int32))

    distances = ((points(asked)[:, None] - points(same)[None]) ** 2).sum(axis=2)
    found = Neighbours(sketch, same).nearest(asked)
    for row, candidate in zip(distances, found, strict=True):
        assert row[same.index(candidate)] == pytest.approx(row.min())


def test_a_lonely_candidate_of_its_sketch_stays_where_it_is() -> None:
    lonely = next(t for t in TASK.trials if t.candidate.sketch == RFACTOR)
    kept = [t for t in TASK.trials if t.candidate.sketch == TILED]
    space = RecordedSpace(replace(TASK, trials=(*kept, lonely)))
    assert space.mutate(np.random.default_rng(0), lonely.candidate) == lonely.candidate
