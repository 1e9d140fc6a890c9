"""The grouping `operator`: FamilySeer's coarse grouping."""

from services.planner.families.base import Member, Placement
from services.planner.families.fixed import FixedFamilies


class ByOperator(FixedFamilies):
    """One family per anchor operator."""

    def place(self, member: Member) -> Placement:
        return Placement(f"operator:{member.op}", f"its anchor operator is {member.op}")
