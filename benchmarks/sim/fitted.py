"""Constants of the planner that were fitted on recorded models, and their values without each of them.

A policy is judged on a model by constants that were fitted on the others. Whoever fits a constant writes down
here what it is when a model is left out; what is not in the table was not fitted on recorded curves.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any, Final

# By model left out: "module:CONSTANT" -> value.
FITTED: Final[dict[str, dict[str, Any]]] = {}


@contextmanager
def left_out(model: str, fitted: Mapping[str, Mapping[str, Any]] = FITTED) -> Iterator[None]:
    """Inside, the planner runs with the constants that were fitted without this model."""
    places = [(*_place(where), value) for where, value in fitted.get(model, {}).items()]
    before = [(module, name, getattr(module, name)) for module, name, _ in places]
    try:
        for module, name, value in places:
            setattr(module, name, value)
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


def _place(where: str) -> tuple[ModuleType, str]:
    module, _, name = where.partition(":")
    return import_module(module), name
