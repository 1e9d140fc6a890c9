"""The page of the graph passes, by phase."""

from typing import Final

from mallorn.graphc.phases import AFTER_SCHEDULES, BEFORE_SCHEDULES, pass_table
from tests.contract.reference.markdown import code, described, page, table

WORDS: Final = (
    "Passes that turn a network into tasks.",
    "`mallorn passes MODEL` reports where each fires and why it leaves the rest.",
    "Recipes, manifests, reports and `--without` use the same names.",
)


def passes_page() -> str:
    """Phases with their purposes, and the passes that TVM lacks."""
    recipes = (*BEFORE_SCHEDULES.values(), *AFTER_SCHEDULES.values())
    phases = [phase for recipe in recipes for phase in recipe]
    in_order = dict.fromkeys((phase.name, phase.purpose) for phase in phases)
    entries = [
        (
            code(entry.name),
            ", ".join(entry.phases),
            described(entry.name, entry.purpose),
        )
        for entry in pass_table()
    ]
    return page(
        "Graph passes",
        *WORDS,
        "",
        *table(["phase", "what it is for"], in_order),
        *table(["pass", "phases", "what it does"], entries),
    )
