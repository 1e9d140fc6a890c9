"""HTML report of one job, in one file that needs no server."""

from mallorn.core.version import VERSION
from mallorn.report.html import Html, el
from mallorn.report.notebook_card import verdict
from mallorn.report.report_data import ReportData
from mallorn.report.sections import SECTIONS
from mallorn.report.style_and_csp import PAGE, POLICY
from mallorn.wording.format_values import moment


def page(story: ReportData, written_at: float) -> str:
    """Return the report as an HTML document; `written_at` is in seconds since the epoch."""
    title = f"{story.job.name}: job {story.job.id}"
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=POLICY),
        el("meta", name="viewport", content="width=device-width"),
        el("title", title),
        el("style", PAGE),
    )
    body = el(
        "body",
        el("h1", title),
        el("p", f"written by Mallorn {VERSION}, {moment(written_at)} UTC", class_="note"),
        verdict(story.job.verdict),
        el("main", (section(story) for section in SECTIONS)),
    )
    return Html("<!doctype html>\n") + el("html", head, body, lang="en") + "\n"
