"""Which members leave a family whose model does not understand them."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from services.planner.families.base import Member, Placement

BADLY_RANKED: Final = 0.6  # a smaller share of a batch's pairs in order
ROUNDS: Final = 2  # as often in a row as a change asks for
PREFIX_CHARS: Final = 8


def splits(members: Sequence[Member]) -> Mapping[int, Placement]:
    """New places for members whose last batches were ranked badly, in families where others fare better.

    A model that ranks everyone badly is young or useless: less data for each would not mend it.
    """
    families = defaultdict[str, list[Member]](list)
    for member in members:
        families[member.family].append(member)
    return {number: place for family in families.values() for number, place in _leaving(family)}


def operator_family(op: str) -> str:
    """Where all workloads of an operator start."""
    return f"dynamic:{op}"


def _leaving(family: Sequence[Member]) -> Iterator[tuple[int, Placement]]:
    if not any(_is_understood(member) for member in family):
        return
    for member in filter(_is_misjudged, family):
        if name := _apart(member, family):
            yield member.id, Placement(name, _words(member))


def _is_misjudged(member: Member) -> bool:
    last = _shares(member)[-ROUNDS:]
    return len(last) == ROUNDS and max(last) < BADLY_RANKED


def _is_understood(member: Member) -> bool:
    return any(share >= BADLY_RANKED for share in _shares(member)[-1:])


def _shares(member: Member) -> list[float]:
    """How its family's own model ranked its batches, where that could be said."""
    mine = [ranking for ranking in member.rankings if ranking.model == member.family]
    return [ranking.own for ranking in mine if ranking.own is not None]


def _apart(member: Member, family: Sequence[Member]) -> str:
    """First to all of its structure, from there to a family of its own; empty where it is alone already."""
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
