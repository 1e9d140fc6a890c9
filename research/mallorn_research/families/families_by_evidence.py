"""Families `dynamic`: one per operator; workloads that it ranks badly are split off."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from mallorn.services.planner.families.base import Families, Member, Placement

BADLY_RANKED: Final = 0.6  # share of a round's pairs in order, below which a model ranks badly
ROUNDS: Final = 2  # consecutive rounds of evidence that a split needs
PREFIX_CHARS: Final = 8


class ByEvidence(Families):
    """Splits badly ranked workloads off.

    A split needs clear evidence from two rounds in a row, and a moved workload starts
    without evidence. Each workload splits off at most twice: by structure, then alone.
    """

    revises = True

    def group(self, members: Sequence[Member]) -> Mapping[int, Placement]:
        # Sorted by key, not by id: the result must be the same in every database.
        by_key = sorted(members, key=lambda member: member.key)
        old_members = [member for member in by_key if member.family]
        placements = {
            member.id: Placement(member.family, member.why)
            if member.family
            else _first_placement(member, old_members)
            for member in by_key
        }
        with_families = [replace(member, family=placements[member.id].family) for member in by_key]
        return placements | find_splits(with_families)


def find_splits(members: Sequence[Member]) -> dict[int, Placement]:
    """Return new families for workloads whose candidates their family's model ranks badly.

    A family whose model ranks all its workloads badly stays whole: the model is new or
    useless, and with less data it would not improve.
    """
    families = defaultdict[str, list[Member]](list)
    for member in members:
        families[member.family].append(member)
    placements: dict[int, Placement] = {}
    for family in families.values():
        last_shares = (share for member in family for share in member.rank_shares[-1:])
        if max(last_shares, default=0.0) < BADLY_RANKED:
            continue
        for member in family:
            last = member.rank_shares[-ROUNDS:]
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
                    f"{' and '.join(f'{share:.2f}' for share in last)} of the pairs of its last rounds "
                    f"in order, below {BADLY_RANKED:.2f}",
                )
    return placements


def operator_family(op: str) -> str:
    """Return the family in which all workloads of an operator start."""
    return f"dynamic:{op}"


def _first_placement(member: Member, old_members: Sequence[Member]) -> Placement:
    """Place a new workload in a family of its loop structure, or else of its operator."""
    of_operator = [old for old in old_members if old.op == member.op]
    alike = [old.family for old in of_operator if old.structure == member.structure]
    if alike:
        words = f"joins workloads of the same operator, {member.op}, and structure"
        return Placement(_most_frequent(alike), words)
    start = operator_family(member.op)
    # Split-off families keep to their structure.
    families = [old.family for old in of_operator if not old.family.startswith(f"{start}/")]
    if families:
        return Placement(_most_frequent(families), f"joins workloads of the same operator, {member.op}")
    return Placement(start, f"starts the family of the operator {member.op}")


def _most_frequent(names: Sequence[str]) -> str:
    counts = Counter(names)
    return min(counts, key=lambda name: (-counts[name], name))
