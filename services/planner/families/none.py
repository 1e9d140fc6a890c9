"""The grouping `none`: what a comparison of groupings starts from."""

from services.planner.families.base import Member, Placement
from services.planner.families.fixed import FixedFamilies


class NoFamilies(FixedFamilies):
    """Each workload learns from its own measurements alone, as in Ansor with a model a task."""

    def place(self, member: Member) -> Placement:
        return Placement(f"none:{member.key}", "shares nothing with other workloads")
