"""Decision vectors become points and come back; any point is some well-formed decision vector."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mallorn.searchers.decision_space import SketchRules
from mallorn.searchers.space import Choice, ChoiceKind, Sketch
from mallorn_research.searchers.decision_vector_encoding import Genes, genes_of, round_to_total

EXTENTS = st.sampled_from([1, 2, 7, 12, 64, 97, 112, 224, 360, 1000])


def sketch(extent: int, width: int) -> Sketch:
    return Sketch(
        f"sketch-{extent}-{width}",
        "",
        (
            Choice(ChoiceKind.TILE, width, extent=extent, limit=64),
            Choice(ChoiceKind.TILE, 5, extent=4 * extent, inner_multiple=(3, 4)),
            Choice(ChoiceKind.CATEGORICAL, 1, values=(0, 1, 2), weights=(0.5, 0.0, 0.5)),
            Choice(ChoiceKind.LOCATION, 1, values=(-1, 0, 5)),
        ),
    )


@given(EXTENTS, st.integers(2, 5), st.integers(0, 99))
def test_what_was_encoded_comes_back(extent: int, width: int, seed: int) -> None:
    rules = SketchRules(sketch(extent, width))
    rows = rules.sample(np.random.default_rng(seed), 20)
    genes = Genes(rules.sketch)
    points = genes.encode(rows)
    assert points.shape == (20, genes.columns)
    np.testing.assert_array_equal(genes.decode(points), rows)


@given(EXTENTS, st.integers(2, 5), st.integers(0, 99), st.sampled_from([0.1, 3.0, 1e4]))
def test_any_point_is_a_well_formed_vector(extent: int, width: int, seed: int, scale: float) -> None:
    rules = SketchRules(sketch(extent, width))
    genes = Genes(rules.sketch)
    points = np.random.default_rng(seed).normal(0, scale, (20, genes.columns))
    rows = genes.decode(points)
    assert rules.well_formed(rows).all()
    assert not (rows[:, -2] == 1).any()  # the value that is never drawn


def test_a_sketch_without_choices_has_one_vector() -> None:
    genes = Genes(Sketch("none", "", ()))
    assert genes.encode(np.zeros((3, 0), dtype=np.int32)).shape == (3, 0)
    assert genes.decode(np.zeros((3, 0))).shape == (3, 0)


def test_genes_are_made_once() -> None:
    assert genes_of(sketch(64, 4)) is genes_of(sketch(64, 4))


@pytest.mark.parametrize(
    ("point", "whole"),
    [([2.1, 0.9, 3.0], [2, 1, 3]), ([-5.0, 0.0, 9.0], [0, 0, 6]), ([2.0, 2.0, 2.0], [2, 2, 2])],
)
def test_points_are_rounded_to_the_nearest_with_the_same_sum(point: list[float], whole: list[int]) -> None:
    assert round_to_total(np.array([point]), 6).tolist() == [whole]
