"""What builds HTML, its tables and its facts: everything is escaped, but for what was built."""

from operator import itemgetter
from typing import Any

from mallorn.report.html_elements import Html, el, join, render_facts, table
from mallorn.report.report_page import _option
from mallorn.wording.format_values import Column
from tests.fixtures.markup import Markup


def test_texts_and_attributes_are_escaped_and_elements_are_not() -> None:
    built = el("p", "<b>&", el("i", 3), class_='x" onload="y')
    assert built == '<p class="x&quot; onload=&quot;y">&lt;b&gt;&amp;<i>3</i></p>'


def test_lists_are_joined_and_nothing_is_left_out() -> None:
    assert join(["a", None, [el("b"), ("<",)], (str(n) for n in (1, 2))]) == "a<b></b>&lt;12"
    assert el("p", id=None, aria_label="x") == '<p aria-label="x"></p>'


def test_void_elements_have_no_end() -> None:
    assert el("meta", charset="utf-8") == '<meta charset="utf-8">'


def test_what_is_cut_out_of_markup_is_text_again() -> None:
    markup = el("p", "x")
    assert el("i", markup[:3]) == "<i>&lt;p&gt;</i>"
    assert el("i", markup) == Html("<i><p>x</p></i>")


FIRST: Column[Any] = Column("A", itemgetter(0))


def test_numbers_stand_to_the_right_with_their_heading() -> None:
    built = table([("x", None), ("y", 1234.5)], [FIRST, Column("N\n(us)", itemgetter(1))])
    assert '<th scope="col" class="number">N (us)</th>' in built
    assert '<td class="number">1,234</td>' in built
    assert Markup(built).text == "AN (us)x-y1,234"


def test_a_table_that_is_too_wide_scrolls_by_keyboard_too() -> None:
    assert ("tabindex", "0") in Markup(table([], [FIRST])).attributes


def test_a_cell_of_markup_stays_markup() -> None:
    assert "<td><i>x</i></td>" in table([(el("i", "x"),)], [FIRST])


def test_facts_that_are_not_known_are_left_out() -> None:
    assert Markup(render_facts({"a": 0, "b": None, "c": "", "d": "x"})).text == "a0dx"


def test_options_are_told_as_they_were_typed() -> None:
    evaluator = {"number": 3, "repeat": 1}
    told = [_option(value) for value in ("racing", None, [], {}, ["conv*"], evaluator, 30.0)]
    assert told == ["racing", "", "", "", "['conv*']", "number 3, repeat 1", "30.0"]
