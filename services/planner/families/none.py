"""The grouping `none`: the floor of a comparison of groupings."""

from services.planner.families.base import Member, Placement
from services.planner.families.fixed import FixedFamilies


class NoFamilies(FixedFamilies):
    """Each workload learns from its own measurements alone, as in Ansor with one model per task."""

    def place(self, member: Member) -> Placement:
        return Placement(f"none:{member.key}", "shares nothing with other workloads")
