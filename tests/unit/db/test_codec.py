"""What a measurement stores must come back as it went in, and stay small."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mallorn.db.measurement_codec import (
    pack_decisions,
    pack_text,
    pack_times,
    unpack_decisions,
    unpack_text,
    unpack_times,
)


@given(st.lists(st.integers(min_value=-(2**70), max_value=2**70)))
def test_decisions_come_back_exactly(decisions):
    assert unpack_decisions(pack_decisions(decisions)) == tuple(decisions)


@given(st.lists(st.integers(min_value=-64, max_value=63)))
def test_a_small_decision_takes_one_byte(decisions):
    assert len(pack_decisions(decisions)) == len(decisions)


@given(st.lists(st.integers(min_value=64, max_value=2**40), min_size=1))
def test_torn_decisions_are_refused(decisions):
    with pytest.raises(ValueError, match="middle of a number"):
        unpack_decisions(pack_decisions(decisions)[:-1])


@given(st.lists(st.floats(min_value=0.01, max_value=1e9, allow_nan=False)))
def test_times_keep_six_digits_in_four_bytes(times):
    packed = pack_times(times)
    assert len(packed) == 4 * len(times)
    assert unpack_times(packed) == pytest.approx(times, rel=1e-6)


@given(st.text())
def test_texts_come_back_exactly(text):
    assert unpack_text(pack_text(text)) == text


def test_long_texts_shrink():
    text = '{"instruction": "Split", "loop": 3}' * 1000
    assert len(pack_text(text)) < len(text) / 50
