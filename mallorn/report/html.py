"""Builds HTML from texts that are all escaped, but for what was built here."""

from collections.abc import Iterable
from html import escape
from typing import Any, Final

VOID: Final = frozenset({"meta"})
Child = Any  # a text or a number, Html, None (nothing), or an iterable of such


class Html(str):
    """Text that is markup already. Only `el` and constants of ours may make it."""

    __slots__ = ()


def el(tag: str, /, *children: Child, **attributes: Any) -> Html:
    """An element: `class_="x"` and `aria_label="y"` are class="x" and aria-label="y", None leaves out."""
    known = ((key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items())
    words = "".join(f' {key}="{escape(str(value))}"' for key, value in known if value is not None)
    return Html(f"<{tag}{words}>" if tag in VOID else f"<{tag}{words}>{join(children)}</{tag}>")


def join(children: Iterable[Child]) -> Html:
    """All of them, one after the other."""
    return Html("".join(_text(child) for child in children))


def _text(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Html):
        return child
    if isinstance(child, Iterable) and not isinstance(child, str):
        return join(child)
    return escape(str(child))
