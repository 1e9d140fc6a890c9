"""Families: which tasks share measurements and a cost model."""


def by_operator(op: str, structure: str) -> str:
    """One family an anchor operator (FamilySeer's coarse grouping)."""
    del structure
    return f"operator:{op}"
