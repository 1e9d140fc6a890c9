"""The verdict on a job as HTML, coloured by its level."""

from mallorn.core.values.verdict import Verdict
from mallorn.report.html import Html, el


def verdict(known: Verdict | None) -> Html | None:
    """What the figures mean, and the command to type next."""
    if known is None:
        return None
    following = el("p", "Next: ", el("code", known.next)) if known.next else None
    return el("div", el("p", el("strong", known.summary)), following, class_=f"verdict {known.level}")
