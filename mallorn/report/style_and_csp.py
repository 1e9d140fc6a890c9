"""Style sheet of reports and cards (light and dark), and the content security policy."""

import base64
import hashlib
from typing import Final

from mallorn.report.html_elements import Html

CHART: Final = """
svg { width: 100%; max-width: 720px; height: auto; font: 11px system-ui, sans-serif; }
svg text { fill: currentColor; opacity: .75; }
svg .grid { stroke: currentColor; opacity: .14; }
svg .axis { stroke: currentColor; opacity: .5; }
svg .beside { stroke: currentColor; opacity: .6; stroke-dasharray: 5 4; }
svg .curve { fill: none; stroke: #2f9e5b; stroke-width: 2; }
svg circle { fill: #2f9e5b; }
"""
SHARED: Final = """
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .2rem .7rem .2rem 0; vertical-align: top; }
th { font-weight: 600; border-bottom: 1px solid #8888; white-space: nowrap; }
td { border-bottom: 1px solid #8883; }
th.number, td.number { text-align: right; }
.wide { overflow-x: auto; }
dl { display: flex; flex-wrap: wrap; gap: .4rem 2rem; margin: .6rem 0; }
dt { font-size: .8em; opacity: .75; }
dd { margin: 0; font-weight: 600; overflow-wrap: anywhere; }
.note { opacity: .75; }
.verdict { border-left: 4px solid #8888; padding: .1rem .9rem; margin: .8rem 0; }
.verdict p { margin: .3rem 0; }
.verdict.good { border-left-color: #2f9e5b; }
.verdict.fair { border-left-color: #c98a1b; }
.verdict.poor { border-left-color: #c9403b; }
"""
PAGE: Final = Html(
    ":root { color-scheme: light dark; --ground: #fff; --ink: #1c2420; --code: #f1f4f2; }\n"
    "@media (prefers-color-scheme: dark) {\n"
    "  :root { --ground: #141916; --ink: #e3e9e5; --code: #222a25; }\n}\n"
    "body { background: var(--ground); color: var(--ink); font: 15px/1.45 system-ui, sans-serif;\n"
    "  max-width: 75rem; margin: 1.5rem auto; padding: 0 1rem; }\n"
    "h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }\n"
    "pre { background: var(--code); padding: .7rem .9rem; overflow-x: auto; }\n"
    "code, pre { font: 13px/1.45 ui-monospace, monospace; }\n" + SHARED + CHART
)
# The policy allows this style by its hash; it forbids other styles and all scripts.
STYLE_HASH: Final = f"'sha256-{base64.b64encode(hashlib.sha256(PAGE.encode()).digest()).decode()}'"
POLICY: Final = f"default-src 'none'; style-src {STYLE_HASH}; base-uri 'none'; form-action 'none'"
# Browsers accept frame-ancestors only in a header, not in the page's own policy.
SERVED: Final = f"{POLICY}; frame-ancestors 'none'"


def scope_style_rules(prefix: str) -> Html:
    """Return the shared style rules limited to `prefix`, for HTML inside another page."""
    rules = (line.partition("{") for line in (SHARED + CHART).splitlines() if line)
    lines: list[str] = []
    for selectors, brace, body in rules:
        names = ", ".join(f"{prefix} {selector.strip()}" for selector in selectors.split(","))
        lines.append(f"{names} {brace}{body}")
    return Html("\n".join(lines))
