"""The passes of this package as a table: name, purpose, phases and order."""

from inspect import getdoc

from graphc.core.pass_registry import OWN_PASSES, defined, followers
from graphc.phases import BEFORE_SCHEDULES, PassEntry


def pass_table() -> list[PassEntry]:
    """All passes, in the order of the first recipe and phase that runs them."""
    return [
        PassEntry(
            name=made.name,
            stored_name=name,
            purpose=(getdoc(made) or "").partition("\n")[0],
            phases=tuple(phases),
            after=made.after,
        )
        for name, phases in _phases_by_pass().items()
        for made in (defined(name), *followers(name))
    ]


def _phases_by_pass() -> dict[str, dict[str, None]]:
    found: dict[str, dict[str, None]] = {}
    for phase in (phase for phases in BEFORE_SCHEDULES.values() for phase in phases):
        for step in phase.steps:
            if step.name in OWN_PASSES:
                found.setdefault(step.name, {})[phase.name] = None
    return found
