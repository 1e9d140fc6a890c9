"""The pages of the settings and of what a job may ask for, and all pages there are."""

import json
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, get_args

from pydantic import SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from mallorn.core.settings import Settings, default_data_dir
from tests.contract.reference.cli import cli_page
from tests.contract.reference.errors import errors_page
from tests.contract.reference.markdown import code, described, page, table
from tests.contract.reference.passes import passes_page
from tests.contract.reference.rest import rest_page
from tests.contract.reference.sandbox import sandbox_page

if TYPE_CHECKING:
    from mallorn.services.coordinator.options_and_retention import OptionOut

OPTION_WORDS: Final = (
    "What `options` of `POST /api/v1/jobs`, keywords of `Client.submit` and `--option NAME=VALUE` may hold.",
    "Choices are the names in `mallorn/core/registry.py`; the defaults are what a newcomer should keep.",
)
SETTING_WORDS = (
    "Read from the environment by every process; each takes what it needs. A flag of a command goes first."
)


def options_page() -> str:
    """Every option of a job, as the API lists them."""
    from mallorn.services.coordinator.options_and_retention import list_options

    rows = []
    for option in list_options().items:
        words = described(f"the option {option.name}", option.description)
        default = "" if option.default is None else json.dumps(option.default)
        rows.append((code(option.name), _choices(option), code(default), words))
    return page("Job options", *OPTION_WORDS, "", *table(["option", "values", "default", "meaning"], rows))


def _choices(option: "OptionOut") -> str:
    if option.choices:
        return ", ".join(code(name) for name in option.choices)
    bounds = {"above": option.exclusive_minimum, "from": option.minimum, "to": option.maximum}
    told = [f"{words} {bound:g}" for words, bound in bounds.items() if bound is not None]
    return " ".join([option.kind, *told])


def settings_page() -> str:
    """Every setting as an environment variable."""
    prefix = Settings.model_config["env_prefix"]
    rows = []
    for name, field in Settings.model_fields.items():
        variable = f"{prefix}{name.upper()}"
        words = described(variable, field.description)
        rows.append((code(variable), _type(field.annotation), code(_default(field)), words))
    return page("Settings", SETTING_WORDS, "", *table(["variable", "type", "default", "meaning"], rows))


def _type(annotation: Any) -> str:
    """A word for people; what may be left out is a matter of its default."""
    kinds = [kind for kind in get_args(annotation) if kind is not NoneType] or [annotation]
    names = {
        str: "text",
        SecretStr: "secret",
        Path: "path",
        int: "integer",
        float: "number",
        bool: "yes or no",
    }
    return names.get(kinds[0], "text")


def _default(field: FieldInfo) -> str:
    if field.default_factory is default_data_dir:
        return f"~/{default_data_dir().relative_to(Path.home())}"
    return "" if field.default in (None, PydanticUndefined) else str(field.default)


def pages() -> dict[str, str]:
    """Every page by the name of its file. Raises Undescribed for what has no words of its own."""
    return {
        "cli.md": cli_page(),
        "errors.md": errors_page(),
        "rest.md": rest_page(),
        "settings.md": settings_page(),
        "options.md": options_page(),
        "passes.md": passes_page(),
        "sandbox.md": sandbox_page(),
    }
