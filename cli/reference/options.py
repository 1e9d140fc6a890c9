"""The page of what a job may ask for."""

import json
from typing import Any, Final

from cli.reference.markdown import code, described, page, table

WORDS: Final = (
    "What `options` of `POST /api/v1/jobs`, keywords of `Client.tune` and `--option NAME=VALUE` may hold.",
    "Choices are the names in `mallorn/core/names.py`; the defaults are what a newcomer should keep.",
)


def options_page() -> str:
    """Every option of a job, as the API lists them."""
    from services.coordinator.options import list_options

    known = [option.model_dump() for option in list_options().items]
    rows = [_row(option) for option in known]
    return page("Job options", *WORDS, "", *table(["option", "values", "default", "meaning"], rows))


def _row(option: dict[str, Any]) -> tuple[str, str, str, str]:
    words = described(f"the option {option['name']}", option["words"])
    default = "" if option["default"] is None else json.dumps(option["default"])
    return code(option["name"]), _values(option), code(default), words


def _values(option: dict[str, Any]) -> str:
    if option["choices"]:
        return ", ".join(code(name) for name in option["choices"])
    bounds = [
        f"{words} {option[key]:g}"
        for key, words in (("above", "above"), ("minimum", "from"), ("maximum", "to"))
        if option[key] is not None
    ]
    return " ".join([str(option["kind"]), *bounds])
