"""Groupings that depend on the workload alone and never change."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence

from services.planner.families.base import Families, Member, Placement


class FixedFamilies(Families):
    """Places each member by itself; a member that has a family keeps it."""

    @abstractmethod
    def place(self, member: Member) -> Placement:
        """The placement of a member, independent of all others."""

    def group(self, members: Sequence[Member]) -> Mapping[int, Placement]:
        return {
            member.id: Placement(member.family, member.why) if member.family else self.place(member)
            for member in members
        }
