"""The Families interface, which groups a target's workloads that share a cost model."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Ranking:
    """Shares of a round's candidate pairs that models ordered correctly; 0.5 is a guess."""

    round: int  # orders the rounds of a target
    model: str  # the family whose model proposed the batch
    own: float | None = None  # that model's share; None if too little was valid
    others: Mapping[str, float] = field(default_factory=dict)  # the shares of other families' models


@dataclass(frozen=True, slots=True)
class Member:
    """A workload, its family, and how well models ranked its rounds since it joined that."""

    id: int  # the workload's id
    key: str
    op: str  # its anchor operator
    structure: str  # hash of its loop structure without sizes
    family: str = ""  # its family, the same for all jobs; empty if it is new
    why: str = ""
    rankings: tuple[Ranking, ...] = ()  # of rounds since it joined its family, oldest first


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
