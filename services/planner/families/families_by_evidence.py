"""The grouping `dynamic`: operators, split and merged by how models rank fresh batches."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Final

from services.planner.families.base import Families, Member, Placement
from services.planner.families.family_splits import ROUNDS, operator_family, splits

WELL_RANKED: Final = 0.75  # share of a batch's pairs in order, above which a model ranks well

Shares = Mapping[tuple[str, str], Sequence[float]]  # (whose batches, whose model): oldest first


def merges(members: Sequence[Member]) -> Mapping[int, Placement]:
    """New placements for the members of the first family that joins another; the smaller name stays."""
    shares = _shares(members)
    for stays, goes in combinations(sorted({member.family for member in members}), 2):
        last = [*shares.get((stays, goes), ())[-ROUNDS:], *shares.get((goes, stays), ())[-ROUNDS:]]
        if len(last) == 2 * ROUNDS and min(last) > WELL_RANKED:
            why = (
                f"came with {goes}, which merged: each one's model had at least {min(last):.2f} of the "
                f"pairs of the other's last batches in order, above {WELL_RANKED:.2f}"
            )
            place = Placement(stays, why)
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


REVISIONS: Final[Sequence[Callable[[Sequence[Member]], Mapping[int, Placement]]]] = (splits, merges)


class ByEvidence(Families):
    """Splits off members that their family's model ranks badly; merges families that rank each other well.

    Splits and merges need clearly different shares, each twice in a row, and a moved member starts without
    evidence, so nothing oscillates. A call ends: a member leaves once, and merges run out of families.
    """

    revises = True

    def group(self, members: Sequence[Member]) -> Mapping[int, Placement]:
        # By key, not by id: the same workloads get the same answer in every database.
        before = sorted(members, key=lambda member: member.key)
        placed = [member for member in before if member.family]
        after = _apply(before, {each.id: _first_place(each, placed) for each in before if not each.family})
        while moved := next(filter(None, (revise(after) for revise in REVISIONS)), None):
            after = _apply(after, moved)
        # A member that left and came back has not moved.
        return {
            was.id: Placement(now.family, was.why if now.family == was.family else now.why)
            for was, now in zip(before, after, strict=True)
        }


def _apply(members: Sequence[Member], moved: Mapping[int, Placement]) -> Sequence[Member]:
    return [
        replace(member, family=to.family, why=to.why, rankings=()) if (to := moved.get(member.id)) else member
        for member in members
    ]


def _first_place(member: Member, placed: Sequence[Member]) -> Placement:
    """The family of known workloads of the same structure, else of the same operator."""
    operator = [other for other in placed if other.op == member.op]
    alike = [other.family for other in operator if other.structure == member.structure]
    if alike:
        return Placement(_most(alike), f"joins workloads of its operator, {member.op}, and of its structure")
    start = operator_family(member.op)
    # What was split off is for its structure only; a family of another operator merged with ours.
    whole = [other.family for other in operator if not other.family.startswith(f"{start}/")]
    if whole:
        return Placement(_most(whole), f"joins workloads of its operator, {member.op}")
    return Placement(start, f"starts with its operator, {member.op}")


def _most(names: Sequence[str]) -> str:
    counts = Counter(names)
    return min(counts, key=lambda name: (-counts[name], name))
