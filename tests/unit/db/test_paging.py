"""Cursors are opaque texts: ours are understood, anything else is a clear error."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mallorn.core.errors import InvalidRequest
from mallorn.db.repositories.base import Page

NUMBERS = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@given(st.floats(allow_nan=False, allow_infinity=False), TEXTS, NUMBERS)
def test_a_cursor_comes_back_exactly(moment, name, number):
    cursor = Page.encode_cursor(moment, name, number)
    assert Page.decode_cursor(cursor, float, str, int) == [moment, name, number]


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "nonsense",
        "e30",
        "ü",
        Page.encode_cursor("a"),
        Page.encode_cursor(1, 2),
        Page.encode_cursor(2**63),
        "W1tb" * 9999,
    ],
)
def test_a_foreign_cursor_is_an_invalid_request(cursor):
    with pytest.raises(InvalidRequest, match="cursor"):
        Page.decode_cursor(cursor, int)


@given(st.lists(NUMBERS, unique=True, max_size=30), st.integers(min_value=1, max_value=10))
def test_following_the_cursors_sees_every_row_once(rows, limit):
    rows, seen, cursor = sorted(rows), [], None
    while True:
        start = 0 if cursor is None else rows.index(Page.decode_cursor(cursor, int)[0]) + 1
        found = Page.of(rows[start : start + limit + 1], limit, lambda row: (row,))
        seen += found.items
        if (cursor := found.cursor) is None:
            break
    assert seen == rows
