"""The page of what a job may ask for."""

import json
from typing import TYPE_CHECKING, Final

from cli.reference.markdown import code, described, page, table

if TYPE_CHECKING:
    from services.coordinator.options import OptionOut

WORDS: Final = (
    "What `options` of `POST /api/v1/jobs`, keywords of `Client.tune` and `--option NAME=VALUE` may hold.",
    "Choices are the names in `mallorn/core/names.py`; the defaults are what a newcomer should keep.",
)


def options_page() -> str:
    """Every option of a job, as the API lists them."""
    from services.coordinator.options import list_options

    rows = []
    for option in list_options().items:
        words = described(f"the option {option.name}", option.words)
        default = "" if option.default is None else json.dumps(option.default)
        rows.append((code(option.name), _values(option), code(default), words))
    return page("Job options", *WORDS, "", *table(["option", "values", "default", "meaning"], rows))


def _values(option: "OptionOut") -> str:
    if option.choices:
        return ", ".join(code(name) for name in option.choices)
    bounds = {"above": option.above, "from": option.minimum, "to": option.maximum}
    told = [f"{words} {bound:g}" for words, bound in bounds.items() if bound is not None]
    return " ".join([option.kind, *told])
