"""The page of the settings."""

from pathlib import Path
from types import NoneType
from typing import Any, get_args

from pydantic import SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from cli.reference.markdown import code, described, page, table
from mallorn.core.settings import Settings, default_data_dir

WORDS = (
    "Read from the environment by every process; each takes what it needs. A flag of a command goes first."
)


def settings_page() -> str:
    """Every setting as an environment variable."""
    prefix = Settings.model_config["env_prefix"]
    rows = []
    for name, field in Settings.model_fields.items():
        variable = f"{prefix}{name.upper()}"
        words = described(variable, field.description)
        rows.append((code(variable), _type(field.annotation), code(_default(field)), words))
    return page("Settings", WORDS, "", *table(["variable", "type", "default", "meaning"], rows))


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
