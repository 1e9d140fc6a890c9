"""What builds HTML: everything is escaped, but for what was built."""

from mallorn.report.html import Html, el, join


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
