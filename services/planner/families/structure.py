"""The grouping `structure`: FamilySeer's fine grouping."""

from services.planner.families.base import Member, Placement
from services.planner.families.fixed import FixedFamilies


class ByStructure(FixedFamilies):
    """One family per loop structure: the same operators in the same nests, other sizes."""

    def place(self, member: Member) -> Placement:
        return Placement(
            f"structure:{member.structure}", f"same loops as all of structure {member.structure[:8]}"
        )
