"""Families `dynamic`: one per operator, split and merged by how well their models rank."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Final

from mallorn.services.planner.families.base import Families, Member, Placement

BADLY_RANKED: Final = 0.6  # share of a batch's pairs in order, below which a model ranks badly
WELL_RANKED: Final = 0.75  # share of a batch's pairs in order, above which a model ranks well
ROUNDS: Final = 2  # consecutive rounds of evidence that a change needs
PREFIX_CHARS: Final = 8


def find_splits(members: Sequence[Member]) -> Mapping[int, Placement]:
    """Return new families for workloads whose candidates their family's model ranks badly.

    A family whose model ranks all its workloads badly stays whole: the model is new or
    useless, and with less data it would not improve.
    """
    families = defaultdict[str, list[Member]](list)
    for member in members:
        families[member.family].append(member)
    placements: dict[int, Placement] = {}
    for family in families.values():
        newest = [share for member in family for share in _own_model_rank_shares(member)[-1:]]
        if max(newest, default=0.0) < BADLY_RANKED:
            continue
        for member in family:
            last = _own_model_rank_shares(member)[-ROUNDS:]
            is_misjudged = len(last) == ROUNDS and max(last) < BADLY_RANKED
            # A narrower family: by loop structure, or else by workload.
            of_structure = f"{operator_family(member.op)}/{member.structure[:PREFIX_CHARS]}"
            own_family = f"{of_structure}/{member.key[:PREFIX_CHARS]}"
            is_mixed = len({(relative.op, relative.structure) for relative in family}) > 1
            name = of_structure if is_mixed and of_structure != member.family else own_family
            if is_misjudged and name != member.family:
                placements[member.id] = Placement(
                    name,
                    f"split off from {member.family}, whose model had "
                    f"{' and '.join(f'{share:.2f}' for share in last)} of the pairs of its last batches "
                    f"in order, below {BADLY_RANKED:.2f}",
                )
    return placements


def _own_model_rank_shares(member: Member) -> list[float]:
    """Return the shares of pairs that the family's own model ordered correctly, by round."""
    own_rankings = [ranking for ranking in member.rankings if ranking.model == member.family]
    return [ranking.own for ranking in own_rankings if ranking.own is not None]


def operator_family(op: str) -> str:
    """Return the family in which all workloads of an operator start."""
    return f"dynamic:{op}"


def find_merges(members: Sequence[Member]) -> Mapping[int, Placement]:
    """Return placements that merge one family into another; empty if no two fit."""
    # The shares by which families' models ranked other families' batches, in order.
    shares: dict[tuple[str, str], list[float]] = {}
    pairs = [(ranking, member) for member in members for ranking in member.rankings]
    for ranking, member in sorted(pairs, key=lambda pair: pair[0].round):
        if ranking.model == member.family:
            for name, share in ranking.others.items():
                shares.setdefault((member.family, name), []).append(share)

    for stays, goes in combinations(sorted({member.family for member in members}), 2):
        last = [*shares.get((stays, goes), ())[-ROUNDS:], *shares.get((goes, stays), ())[-ROUNDS:]]
        if len(last) == 2 * ROUNDS and min(last) > WELL_RANKED:
            reason = (
                f"came with {goes}, which merged: each one's model had at least {min(last):.2f} of the "
                f"pairs of the other's last batches in order, above {WELL_RANKED:.2f}"
            )
            place = Placement(stays, reason)
            return {member.id: place for member in members if member.family == goes}
    return {}


REVISIONS: Final[Sequence[Callable[[Sequence[Member]], Mapping[int, Placement]]]] = (find_splits, find_merges)


class ByEvidence(Families):
    """Splits badly ranked workloads off, and merges families that rank each other well.

    A split or merge needs clear evidence from two rounds in a row, and a moved workload
    starts without evidence, so that nothing moves to and fro. A call terminates: each
    workload splits off at most once, and every merge removes a family.
    """

    revises = True

    def group(self, members: Sequence[Member]) -> Mapping[int, Placement]:
        # Sorted by key, not by id: the result must be the same in every database.
        old = sorted(members, key=lambda member: member.key)
        old_members = [member for member in old if member.family]
        placements = {member.id: _first_placement(member, old_members) for member in old if not member.family}
        new = _apply(old, placements)
        while moves := next(filter(None, (revise(new) for revise in REVISIONS)), None):
            new = _apply(new, moves)
        # A member that left and came back has not moved.
        return {
            member.id: Placement(
                new_member.family, member.why if new_member.family == member.family else new_member.why
            )
            for member, new_member in zip(old, new, strict=True)
        }


def _apply(members: Sequence[Member], placements: Mapping[int, Placement]) -> Sequence[Member]:
    """Return the members with their new families; a moved member loses its old rankings."""
    return [
        replace(member, family=placement.family, why=placement.why, rankings=())
        if (placement := placements.get(member.id))
        else member
        for member in members
    ]


def _first_placement(member: Member, old_members: Sequence[Member]) -> Placement:
    """Place a new workload in a family of its loop structure, or else of its operator."""
    of_operator = [old for old in old_members if old.op == member.op]
    alike = [old.family for old in of_operator if old.structure == member.structure]
    if alike:
        words = f"joins workloads of the same operator, {member.op}, and structure"
        return Placement(_most_frequent(alike), words)
    start = operator_family(member.op)
    # Split-off families keep to their structure; other names come from merges.
    families = [old.family for old in of_operator if not old.family.startswith(f"{start}/")]
    if families:
        return Placement(_most_frequent(families), f"joins workloads of the same operator, {member.op}")
    return Placement(start, f"starts the family of the operator {member.op}")


def _most_frequent(names: Sequence[str]) -> str:
    counts = Counter(names)
    return min(counts, key=lambda name: (-counts[name], name))
