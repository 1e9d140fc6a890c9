"""The language of rules computes whole numbers, and refuses everything else with the text it was given."""

import ast
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mallorn.core.errors import InvalidRequest
from mallorn_research.generate.task_rule_file import DEEPEST, LONGEST, parse

VALUES = {"channels": 64, "size": 7, "stride": 2}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3", 3),
        ("2e3", 2000),
        ("channels * 3 / 2", 96),
        ("size / stride", 3),
        ("channels - 2 * size + 1", 51),
        ("channels - 10 - 4", 50),
        ("(channels - 2) * size", 434),
        ("channels % 10", 4),
        ("min(channels, 3 * size)", 21),
        ("max(1, size - 9)", 1),
        ("multiple(channels * 3 / 4, 32)", 64),
        ("multiple(3, 8)", 8),
        ("channels >= 64 and size < 8", 1),
        ("channels > 64 or size == 7", 1),
        ("channels > 64 or size == 8 and stride == 2", 0),
        ("1 or 0 and 0", 1),
    ],
)
def test_texts_come_to_numbers(text: str, expected: int) -> None:
    assert parse(text).value(VALUES) == expected


def test_the_names_of_a_text_are_known_before_it_is_used() -> None:
    assert parse("multiple(channels + 2, 8) / stride").names == {"channels", "stride"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no expression"),
        ("channels *", "is no expression"),
        ("channels size", "is no expression"),
        ("(channels", r"is no expression: '\(' was never closed"),
        ("channels)", r"is no expression: unmatched '\)'"),
        ("* 2", "is no expression"),
        ("and", "is no expression"),
        ("min(1)", "calls min wrongly; the functions of two numbers are min, max, multiple"),
        ("exec(1, 2)", "calls exec wrongly; the functions of two numbers are min, max, multiple"),
        ("channels ** 2", r"has 'channels \*\* 2', which an expression cannot"),
        ("1 < channels < 9", "has '1 < channels < 9', which an expression cannot"),
        ("channels.bit_length", "has 'channels.bit_length', which an expression cannot"),
        ("__import__('os')", "calls __import__ wrongly"),
        ("'text'", "has \"'text'\", which an expression cannot"),
        ("1.5", "has '1.5', which an expression cannot"),
        ("channels\0", "is no expression|has a character that an expression cannot contain"),
        ("9" * 40, "is too large"),
        ("1e99", "is too large"),
        ("1" + " " * LONGEST, f"longer than {LONGEST}"),
        ("(" * (DEEPEST + 1) + "1" + ")" * (DEEPEST + 1), "more than 16 brackets"),
    ],
)
def test_whatever_is_not_of_the_language_is_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        parse(text)


@pytest.mark.parametrize("text", ["1 / 0", "size % (size - 7)"])
def test_a_division_by_zero_is_told(text: str) -> None:
    with pytest.raises(InvalidRequest, match="divides by zero"):
        parse(text).value(VALUES)


def test_numbers_cannot_grow_without_end() -> None:
    text = " * ".join(["1e9"] * 30)
    with pytest.raises(InvalidRequest, match="too large"):
        parse(text).value(VALUES)


@given(st.text(max_size=40))
def test_no_text_does_anything_but_come_to_a_number_or_be_refused(text: str) -> None:
    with suppress(InvalidRequest):
        found = parse(text)
        assert isinstance(found.value(dict.fromkeys(found.names, 3)), int)


@given(st.lists(st.sampled_from(["+", "-", "*"]), min_size=1, max_size=8), st.data())
def test_sums_and_products_come_to_what_python_makes_of_them(signs: list[str], data: st.DataObject) -> None:
    numbers = data.draw(st.lists(st.integers(0, 9), min_size=len(signs) + 1, max_size=len(signs) + 1))
    text = str(numbers[0]) + "".join(
        f" {sign} {number}" for sign, number in zip(signs, numbers[1:], strict=True)
    )
    expected = eval(
        compile(ast.parse(text, mode="eval"), "sum", "eval")
    )  # the reference, of digits and signs
    assert parse(text).value({}) == expected
