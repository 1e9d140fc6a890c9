"""Sketches come back from their JSON as they were, every field of every choice."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mallorn.core.values.candidate import (
    Choice,
    ChoiceKind,
    Sketch,
    pack_choices,
    unpack_choices,
    unpack_sketch,
)

numbers = st.lists(st.integers(-2, 1 << 40), max_size=4).map(tuple)
weights = st.lists(st.floats(0, 1), max_size=4).map(tuple)
choices = st.builds(
    Choice,
    kind=st.sampled_from(ChoiceKind),
    width=st.integers(1, 6),
    extent=st.integers(0, 1 << 20),
    limit=st.integers(0, 64),
    values=numbers,
    labels=numbers,
    weights=weights,
    suggested=numbers,
    inner_multiple=st.none() | st.tuples(st.integers(0, 5), st.integers(1, 8)),
)
sketches = st.builds(
    Sketch, st.text(), st.text(), st.lists(choices, max_size=3).map(tuple), st.integers(0, 9)
)


@given(sketches)
def test_a_sketch_survives_json(sketch: Sketch) -> None:
    packed = json.loads(json.dumps(pack_choices(sketch.choices)))
    assert unpack_choices(packed) == sketch.choices
    fields = {"key": sketch.key, "trace": sketch.trace, "ordinal": sketch.ordinal, "choices": packed}
    assert unpack_sketch(fields) == sketch


def test_choices_of_before_rules_made_suggestions_have_none() -> None:
    old = {"kind": "tile", "width": 2, "extent": 4, "limit": 4, "values": [], "labels": [], "weights": []}
    assert unpack_choices([old]) == (Choice(ChoiceKind.TILE, 2, 4, 4),)


def test_a_choice_without_an_inner_multiple_is_packed_as_before_there_were_any() -> None:
    (packed,) = pack_choices([Choice(ChoiceKind.TILE, 2, 4, 4)])
    assert isinstance(packed, dict)
    assert "inner_multiple" not in packed


@pytest.mark.parametrize("bad", [None, [{}], [{"kind": "tile"}], [{"kind": "odd", "width": 1}], [[1]]])
def test_what_is_no_choice_is_refused(bad: object) -> None:
    with pytest.raises(ValueError, match="validation error"):
        unpack_choices(bad)
