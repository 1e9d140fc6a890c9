"""Which members leave a family whose model ranks them badly."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from services.planner.families.base import Member, Placement

BADLY_RANKED: Final = 0.6  # share of a batch's pairs in order, below which a model ranks badly
ROUNDS: Final = 2  # in a row that a change needs
PREFIX_CHARS: Final = 8


def splits(members: Sequence[Member]) -> Mapping[int, Placement]:
    """New placements for members whose last batches were ranked badly while other members' were not.

    A model that ranks everyone badly is young or useless; less data would not help it.
    """
    families = defaultdict[str, list[Member]](list)
    for member in members:
        families[member.family].append(member)
    return {number: place for family in families.values() for number, place in _leaving(family)}


def operator_family(op: str) -> str:
    """The family in which all workloads of an operator start."""
    return f"dynamic:{op}"


def _leaving(family: Sequence[Member]) -> Iterator[tuple[int, Placement]]:
    newest = [share for member in family for share in _shares(member)[-1:]]
    if max(newest, default=0.0) < BADLY_RANKED:
        return
    for member in family:
        last = _shares(member)[-ROUNDS:]
        misjudged = len(last) == ROUNDS and max(last) < BADLY_RANKED
        if misjudged and (name := _apart(member, family)):
            yield member.id, Placement(name, _words(member))


def _shares(member: Member) -> list[float]:
    """The shares of its family's own model on its batches, where known."""
    mine = [ranking for ranking in member.rankings if ranking.model == member.family]
    return [ranking.own for ranking in mine if ranking.own is not None]


def _apart(member: Member, family: Sequence[Member]) -> str:
    """Its structure's family, or from there a family of its own; empty if it is alone already."""
    of_structure = f"{operator_family(member.op)}/{member.structure[:PREFIX_CHARS]}"
    alone = f"{of_structure}/{member.key[:PREFIX_CHARS]}"
    is_mixed = any((other.op, other.structure) != (member.op, member.structure) for other in family)
    names = [of_structure, alone] if is_mixed else [alone]
    return next((name for name in names if name != member.family), "")


def _words(member: Member) -> str:
    shares = " and ".join(f"{share:.2f}" for share in _shares(member)[-ROUNDS:])
    return (
        f"split off from {member.family}, whose model had {shares} of the pairs of its last batches "
        f"in order, below {BADLY_RANKED:.2f}"
    )
