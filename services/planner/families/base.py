"""The Families interface, which groups workloads that share a cost model, and fixed groupings."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Member:
    """A workload, its family, and how well that family's model ranked its rounds."""

    id: int  # the workload's id
    key: str
    op: str  # its anchor operator
    structure: str  # hash of its loop structure without sizes
    family: str = ""  # its family, the same for all jobs; empty if it is new
    why: str = ""
    #: Share of each round's candidate pairs that the family's model ordered correctly (0.5 is a guess);
    #: of rounds since the workload joined the family, oldest first.
    rank_shares: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Placement:
    """The family of a workload, and the reason in words."""

    family: str
    why: str


class Families(ABC):
    """Groups the workloads of one target.

    Contract
    - Pure: the same members get the same placements, and their order does not matter.
    - Every member gets a placement. A family's name starts with the name under which the grouping is
      registered and a colon, so that two groupings never share a family or its model.
    - A new member joins the family of similar workloads: families hold across jobs.
    - Stable: without new evidence nothing moves, and reasons stay.
    - Unless it `revises`, members keep their family, and `group` runs only for new members.
    """

    revises: ClassVar[bool] = False  # True if evidence moves members: `group` runs after every round

    @abstractmethod
    def group(self, members: Sequence[Member]) -> Mapping[int, Placement]:
        """Return the family of every member, with the reason, keyed by the member's id."""


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
