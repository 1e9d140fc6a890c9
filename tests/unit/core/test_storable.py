"""What both databases and JSON can store, and how strangers' words are told."""

import pytest

from mallorn.core.storable_json import check_storable, quote_untrusted, read_json
from mallorn.core.targets import parse_target


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[" * 100_000, "nested too deep"),
        ("[" * 30 + "]" * 30, "levels deep"),
        ("NaN", "not finite"),
        ("1e999", "not finite"),
        ("9" * 30, "64 bits"),
        ("9" * 5000, "limit"),
        ('"\\u0000"', "NUL"),
        ('"\\ud800"', "surrogate"),
        ('{"a\\u0000":1}', "NUL"),
        ("{", "Expecting"),
        (b"\xff\xfe\x00", "decode"),
    ],
)
def test_what_cannot_be_stored_is_no_value(text: str | bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_json(text)


def test_everything_else_is_read_as_it_stands() -> None:
    value = {"a": [1, 2.5, -(2**63), 2**63 - 1, None, True, "\u00e9\n"]}
    assert read_json('{"a":[1,2.5,-9223372036854775808,9223372036854775807,null,true,"\u00e9\\n"]}') == value
    check_storable(value)


def test_a_strangers_word_is_short_in_one_line_and_moves_no_cursor() -> None:
    assert quote_untrusted("dense_0") == "dense_0"
    assert len(quote_untrusted("a" * 1000)) == 80
    for text in ("a\nb", "\x1b[2J", "\u202eabc", "\0"):
        assert quote_untrusted(text).isprintable()


def test_targets_of_the_old_form_take_lists_where_targets_have_them() -> None:
    target = parse_target("llvm -mcpu=haswell -mattr=+avx,+fma -keys=cpu -num-cores=4")
    assert target.attrs == {
        "kind": "llvm", "mcpu": "haswell", "mattr": ["+avx", "+fma"], "keys": ["cpu"], "num-cores": 4
    }  # fmt: skip
