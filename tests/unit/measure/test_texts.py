"""Error texts keep what says why."""

from hypothesis import given
from hypothesis import strategies as st

from mallorn.workers.measure.build_candidates import TEXT_LIMIT, shorten


def test_a_short_text_stays() -> None:
    assert shorten("  no such function \n") == "no such function"


def test_a_long_text_keeps_its_head_and_its_last_lines() -> None:
    text = "InternalError: check failed\n" + "frame\n" * 1000 + "the last line"
    assert shorten(text).startswith("InternalError: check failed\n")
    assert shorten(text).endswith("\nframe\nthe last line")


@given(st.text(max_size=5000))
def test_no_text_is_longer_than_the_limit(text: str) -> None:
    assert len(shorten(text)) <= TEXT_LIMIT
