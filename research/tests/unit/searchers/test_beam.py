"""Values of prefixes lead beam search to good ends."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mallorn.costmodels.base import Matrix, Prediction, Vector
from mallorn.searchers.decision_features import compute_sketch_features
from mallorn.searchers.learning.knobs import draw_legal_options
from mallorn.searchers.space import Choice, ChoiceKind, Sketch
from mallorn.searchers.synthetic_space import SyntheticSpace
from mallorn.searchers.tile_factorizations import Rows
from mallorn_research.costmodels.decision_prefixes import LAST, ValuesPrefixes, mask_undecided_columns
from mallorn_research.costmodels.prefix_boosters import ValueModel
from mallorn_research.searchers.beam_search import Beam
from mallorn_research.searchers.knob_order import knob_order_of
from research.tests.unit.searchers.trained_bases import SHAPES, base_of


class Narrow(ValuesPrefixes):
    """Knows that the innermost factor of the last axis should be 16, and that open ones may become it."""

    lanes = -1 - 25 - 4 - 8 - 12  # its column, counted from the end

    def fit(self, features: Matrix, labels: Vector, groups: NDArray[np.int64], *, seed: int) -> None: ...

    def score_prefixes(self, features: Matrix) -> Vector:
        off = np.abs(features[:, self.lanes] - 4.0)
        return np.asarray(-np.nan_to_num(off, nan=0.0), dtype=np.float32)

    def predict(self, features: Matrix) -> Prediction:
        mean = self.score_prefixes(features)
        return Prediction(mean, np.zeros_like(mean))

    def save(self) -> bytes:
        return b""

    @classmethod
    def load(cls, blob: bytes) -> "Narrow":
        return cls()


def sketch_of(extents: tuple[int, ...], depth: int) -> Sketch:
    tiles = [Choice(ChoiceKind.TILE, 4, extent=extent, limit=64) for extent in extents]
    lists = [Choice(ChoiceKind.CATEGORICAL, 1, values=(0, 1, 2), labels=(0, 16, 64))]
    places = [Choice(ChoiceKind.LOCATION, 1, values=(-1, 0, 1))]
    return Sketch("any", "", (*tiles, Choice(ChoiceKind.TILE, 2, extent=depth), *lists, *places))


def any_end(sketch: Sketch, rows: Rows, decided: int, seed: int) -> Rows:
    """The rows with the knobs behind `decided` set at random."""
    knobs, done = knob_order_of(sketch), rows.copy()
    for at in knobs.order[decided:]:
        legal = knobs.knobs.legal(at, done)
        place = draw_legal_options(np.random.default_rng(seed + at), np.zeros(legal.shape), legal)
        knobs.knobs.set(at, done, place)
    return done


@given(
    st.lists(st.sampled_from([1, 7, 12, 64, 97, 360]), min_size=1, max_size=8),
    st.sampled_from([1, 48, 512]),
    st.integers(0, 99),
)
def test_what_a_model_sees_of_a_prefix_is_what_all_its_completions_share(
    extents: list[int], depth: int, seed: int
) -> None:
    sketch = sketch_of(tuple(extents), depth)
    knobs = knob_order_of(sketch)
    rows = knobs.knobs.undecided_rows(5)
    for decided in range(len(knobs) + 1):
        if decided:
            legal = knobs.knobs.legal(knobs.order[decided - 1], rows)
            place = draw_legal_options(np.random.default_rng([seed, decided]), np.zeros(legal.shape), legal)
            knobs.knobs.set(knobs.order[decided - 1], rows, place)
        seen = [
            mask_undecided_columns(
                compute_sketch_features(sketch, [1.0], end), knobs.last_decided_step(decided)
            )
            for end in (rows, any_end(sketch, rows, decided, seed), any_end(sketch, rows, decided, seed + 1))
        ]
        np.testing.assert_array_equal(seen[0], seen[1])
        np.testing.assert_array_equal(seen[1], seen[2])
    assert knobs.last_decided_step(len(knobs)) == LAST


def test_a_beam_ends_where_values_are_high() -> None:
    space = SyntheticSpace(256, 256, 64)
    history = [space.measure(candidate) for candidate in space.defaults()]
    beam = Beam(random_share=0.0, considered=64)
    proposals = beam.propose(space, history, Narrow(), 16, np.random.default_rng(0))
    lanes = [proposal.candidate.decisions[7] for proposal in proposals if proposal.origin == "beam"]
    assert len(lanes) > 8
    assert set(lanes) == {16}


def test_a_base_of_other_shapes_opens_a_task_nearer_its_best_than_without_its_values() -> None:
    """Without one measurement of it; the same model prices the ends of both."""
    base = base_of(ValueModel, *SHAPES)
    excess: dict[bool, list[float]] = {True: [], False: []}
    for space in (SyntheticSpace(256, 512, 64), SyntheticSpace(96, 384, 128), SyntheticSpace(128, 128, 512)):
        known = [space.measure(candidate) for candidate in space.defaults()]
        for learning, seed in product((True, False), range(3)):
            beam = Beam(learning=learning, random_share=0.0)
            proposals = beam.propose(space, known, base, 4, np.random.default_rng(seed))
            best = np.nanmin(space.latency_us([proposal.candidate for proposal in proposals]))
            excess[learning].append(float(np.log(best / space.optimum_us)))
    assert np.mean(excess[True]) < 0.6 * np.mean(excess[False])


@pytest.mark.parametrize("values", [True, False])
def test_no_more_candidates_are_priced_than_are_considered(values: bool) -> None:
    space = SyntheticSpace(256, 256, 256)
    history = [space.measure(candidate) for candidate in space.sample(np.random.default_rng(0), 64)]
    model = base_of(ValueModel, (128, 128, 128))
    asked = 0

    def counted(features: Matrix) -> Prediction:
        nonlocal asked
        asked += len(features)
        return ValueModel.predict(model, features)

    model.predict = counted  # type: ignore[method-assign]
    Beam(considered=1024, learning=values).propose(space, history, model, 8, np.random.default_rng(0))
    assert asked < 2 * 1024 + 256  # each once, and the pool that is left once more
