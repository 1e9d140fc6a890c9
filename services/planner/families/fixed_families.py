"""Groupings that depend on a workload's properties only and never change."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence

from mallorn.services.planner.families.base import Families, Member, Placement


class FixedFamilies(Families):
    """Places each new member independently of others; members with a family keep it."""

    @abstractmethod
    def place(self, member: Member) -> Placement:
        """Return the placement of a member, independent of all other members."""

    def group(self, members: Sequence[Member]) -> Mapping[int, Placement]:
        return {
            member.id: Placement(member.family, member.why) if member.family else self.place(member)
            for member in members
        }


class NoFamilies(FixedFamilies):
    """Makes a family per workload, as in Ansor with one model per task."""

    def place(self, member: Member) -> Placement:
        return Placement(f"none:{member.key}", "shares nothing with other workloads")


class ByOperator(FixedFamilies):
    """Makes a family per anchor operator."""

    def place(self, member: Member) -> Placement:
        return Placement(f"operator:{member.op}", f"its anchor operator is {member.op}")


class ByStructure(FixedFamilies):
    """Makes a family per loop structure: the same operators and loop nests, any sizes."""

    def place(self, member: Member) -> Placement:
        return Placement(
            f"structure:{member.structure}", f"same loops as all of structure {member.structure[:8]}"
        )
