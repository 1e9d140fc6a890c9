"""Conformance kit: subclass it, give it its fixture, and every clause of the contract is a test."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
import pytest

from mallorn.costmodels.views import VIEWS
from mallorn.searchers.decision_space import SketchRules
from mallorn.searchers.space import Candidate, Choice, ChoiceKind, Sketch
from mallorn.searchers.synthetic_space import SyntheticSpace
from mallorn.workers.features.feature_extractor import Extractor

WORK: Final = (20.0, 5.0, 6.0, 4.0)  # log2 of the operations, then of each axis
UNROLL: Final = Choice(ChoiceKind.CATEGORICAL, 1, values=(0, 1, 2), labels=(0, 16, 512))
MADE_UP: Final = (
    *SyntheticSpace(64, 96, 128).sketches,
    Sketch("one list", "", (UNROLL,)),
    Sketch("nothing to choose", "[]", ()),
)

MakeExtractor = Callable[[], Extractor]


class ExtractorTestCase:
    """Give the fixture `make_extractor`: a function that makes an extractor."""

    @pytest.fixture
    def make_extractor(self) -> MakeExtractor:
        raise NotImplementedError

    @pytest.fixture
    def sketches(self) -> Mapping[str, Sketch]:
        """The sketches to test; override to add real ones."""
        return {sketch.key: sketch for sketch in MADE_UP}

    @pytest.fixture
    def drawn(self, sketches: Mapping[str, Sketch]) -> Sequence[Candidate]:
        """Distinct candidates of each sketch."""
        return [candidate for sketch in sketches.values() for candidate in draw(sketch, 40)]

    def test_its_view_is_a_known_one(self, make_extractor: MakeExtractor) -> None:
        view = make_extractor().view
        assert VIEWS[view.name] is view

    def test_rows_are_finite_and_as_wide_as_the_view(
        self, make_extractor: MakeExtractor, sketches: Mapping[str, Sketch], drawn: Sequence[Candidate]
    ) -> None:
        rows = make_extractor().extract(sketches, WORK, drawn)
        assert rows.shape == (len(drawn), make_extractor().view.width)
        assert rows.dtype == np.float32
        assert np.isfinite(rows).all()

    def test_no_candidates_are_no_rows(
        self, make_extractor: MakeExtractor, sketches: Mapping[str, Sketch]
    ) -> None:
        rows = make_extractor().extract(sketches, WORK, [])
        assert rows.shape == (0, make_extractor().view.width)

    def test_another_extractor_says_the_same(
        self, make_extractor: MakeExtractor, sketches: Mapping[str, Sketch], drawn: Sequence[Candidate]
    ) -> None:
        first, second = (make_extractor().extract(sketches, WORK, drawn) for _ in range(2))
        np.testing.assert_array_equal(first, second)

    def test_a_row_depends_on_its_candidate_alone(
        self, make_extractor: MakeExtractor, sketches: Mapping[str, Sketch], drawn: Sequence[Candidate]
    ) -> None:
        order = np.random.default_rng(5).permutation(len(drawn))
        together = make_extractor().extract(sketches, WORK, drawn)
        shuffled = make_extractor().extract(sketches, WORK, [drawn[at] for at in order])
        alone = make_extractor().extract(sketches, WORK, drawn[3:4])
        np.testing.assert_array_equal(shuffled, together[order])
        np.testing.assert_array_equal(alone, together[3:4])

    def test_other_decisions_are_another_row(
        self, make_extractor: MakeExtractor, sketches: Mapping[str, Sketch]
    ) -> None:
        for sketch in sketches.values():
            drawn = draw(sketch, 200)
            rows = make_extractor().extract(sketches, WORK, drawn)
            assert len(np.unique(rows, axis=0)) == len(drawn)

    def test_descriptors_of_any_length_fit(
        self, make_extractor: MakeExtractor, sketches: Mapping[str, Sketch], drawn: Sequence[Candidate]
    ) -> None:
        for descriptors in ((), (1.0,), tuple(float(at) for at in range(60))):
            assert np.isfinite(make_extractor().extract(sketches, descriptors, drawn)).all()

    def test_the_lines_of_a_table_come_first_and_below_there_is_nothing(
        self, make_extractor: MakeExtractor, sketches: Mapping[str, Sketch], drawn: Sequence[Candidate]
    ) -> None:
        extractor = make_extractor()
        if len(extractor.view.shape) == 1:
            return
        tables = extractor.view.tables(extractor.extract(sketches, WORK, drawn))
        present = tables[:, :, 0]
        assert set(np.unique(present)) <= {0.0, 1.0}
        assert present[:, 0].all()
        assert (np.diff(present, axis=1) <= 0).all()
        assert not tables[present == 0].any()


def draw(sketch: Sketch, count: int) -> list[Candidate]:
    """Distinct candidates of a sketch, at most `count`."""
    rows = SketchRules(sketch).sample(np.random.default_rng(7), count)
    return [Candidate(sketch.key, tuple(row)) for row in np.unique(rows, axis=0).tolist()]
