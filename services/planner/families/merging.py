"""Which families merge because each one's model ranks the other's batches well."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Final

from services.planner.families.base import Member, Placement
from services.planner.families.splitting import ROUNDS

WELL_RANKED: Final = 0.75  # share of a batch's pairs in order, above which a model ranks well

Shares = Mapping[tuple[str, str], Sequence[float]]  # (whose batches, whose model): oldest first


def merges(members: Sequence[Member]) -> Mapping[int, Placement]:
    """New placements for the members of the first family that joins another; the smaller name stays."""
    shares = _shares(members)
    for stays, goes in combinations(sorted({member.family for member in members}), 2):
        last = [*shares.get((stays, goes), ())[-ROUNDS:], *shares.get((goes, stays), ())[-ROUNDS:]]
        if len(last) == 2 * ROUNDS and min(last) > WELL_RANKED:
            place = Placement(stays, _words(goes, min(last)))
            return {member.id: place for member in members if member.family == goes}
    return {}


def _shares(members: Sequence[Member]) -> Shares:
    """How families' models ranked the batches of other families' members, in the order of the rounds."""
    found: dict[tuple[str, str], list[float]] = {}
    seen = [(ranking, member) for member in members for ranking in member.rankings]
    for ranking, member in sorted(seen, key=lambda pair: pair[0].round):
        if ranking.model == member.family:
            for other, share in ranking.others.items():
                found.setdefault((member.family, other), []).append(share)
    return found


def _words(goes: str, least: float) -> str:
    return (
        f"came with {goes}, which merged: each one's model had at least {least:.2f} of the pairs of the "
        f"other's last batches in order, above {WELL_RANKED:.2f}"
    )
