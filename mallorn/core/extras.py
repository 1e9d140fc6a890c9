"""Packages that only some users need, imported when they are used."""

from importlib import import_module
from typing import Any

from mallorn.core.errors import MissingPackage as MissingPackage
from mallorn.core.installing import install_line


def need(module: str, what_for: str, extra: str) -> Any:
    """The module. Raises MissingPackage, with the command that installs the extra that has it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != module.partition(".")[0]:
            raise
        raise MissingPackage(
            f"{what_for} needs {module}, which is not installed", hint=install_line(extra)
        ) from None
