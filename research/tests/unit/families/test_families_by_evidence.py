"""When `dynamic` splits families, and that it does so on fresh evidence only."""

from collections import Counter
from dataclasses import replace
from random import Random

from mallorn.services.planner.families.base import Member, Placement
from mallorn_research.families.families_by_evidence import ByEvidence

MATMUL = "dynamic:matmul"


def member(number: int, structure: str = "s", family: str = MATMUL, op: str = "matmul") -> Member:
    return Member(number, f"{number:064}", op, structure * 16, family, "was there")


def ranked(who: Member, *shares: float) -> Member:
    """With rounds that its family's model ranked so well."""
    return replace(who, rank_shares=(*who.rank_shares, *shares))


def families(*members: Member) -> list[str]:
    places = ByEvidence().group(members)
    return [places[one.id].family for one in members]


FINE = ranked(member(9, "f"), 0.8)


def test_two_bad_rounds_in_a_row_split_a_member_off_and_say_so() -> None:
    bad = ranked(member(1), 0.9, 0.52, 0.48)
    place = ByEvidence().group([bad, FINE])[1]
    assert place.family == f"{MATMUL}/ssssssss"
    assert place.why.startswith(f"split off from {MATMUL}, whose model had 0.52 and 0.48 of the pairs")


def test_one_bad_round_or_two_with_a_good_one_between_split_nothing() -> None:
    for shares in [(0.5,), (0.5, 0.61, 0.5), (0.5, 0.5, 0.6)]:
        assert families(ranked(member(1), *shares), FINE) == [MATMUL, MATMUL]


def test_a_model_that_ranks_everyone_badly_splits_nothing() -> None:
    assert families(ranked(member(1), 0.5, 0.5), ranked(member(2, "t"), 0.4, 0.4)) == [MATMUL, MATMUL]


def test_a_member_is_not_split_from_itself() -> None:
    assert families(ranked(member(1), 0.5, 0.5)) == [MATMUL]


def test_members_of_one_structure_leave_together() -> None:
    pair = ranked(member(1), 0.5, 0.5), ranked(member(2), 0.5, 0.5)
    assert families(*pair, FINE) == [f"{MATMUL}/ssssssss"] * 2 + [MATMUL]


def test_who_leaves_joins_those_of_its_structure_who_left_before() -> None:
    earlier = member(1, family=f"{MATMUL}/ssssssss")
    assert families(earlier, ranked(member(2), 0.5, 0.5), FINE)[1] == earlier.family


def test_among_its_own_structure_a_member_leaves_alone() -> None:
    alike = ranked(member(9), 0.8)
    assert families(ranked(member(1), 0.5, 0.5), alike) == [f"{MATMUL}/ssssssss/00000000", MATMUL]


def test_a_new_softmax_follows_softmaxes_that_an_earlier_version_merged() -> None:
    merged = member(1, "t", MATMUL, "softmax")
    assert families(merged, member(2, "u", "", "softmax")) == [MATMUL, MATMUL]


def test_a_new_workload_of_another_structure_starts_with_its_operator() -> None:
    left = member(1, "t", f"{MATMUL}/tttttttt")
    assert families(left, member(2, "u", "")) == [left.family, MATMUL]
    assert families(left, member(3, "t", "")) == [left.family, left.family]


def test_a_split_follows_two_rounds_and_each_workload_leaves_twice_at_most() -> None:
    random = Random(5)
    shapes = [(op, structure) for op in ("matmul", "softmax") for structure in "stst"]
    crowd = [member(at, shape, f"dynamic:{op}", op) for at, (op, shape) in enumerate(shapes)]
    moves: Counter[int] = Counter()
    for _ in range(400):
        at = random.randrange(len(crowd))
        crowd[at] = ranked(crowd[at], random.random())
        places = ByEvidence().group(crowd)
        for who in (who for who in crowd if places[who.id].family != who.family):
            moves[who.id] += 1
            assert len(who.rank_shares) >= 2
        crowd = [moved(who, places[who.id]) for who in crowd]
    assert moves
    assert max(moves.values()) <= 2


def moved(who: Member, place: Placement) -> Member:
    if place.family == who.family:
        return who
    return replace(who, family=place.family, why=place.why, rank_shares=())


def test_new_workloads_join_those_of_their_operator() -> None:
    old = member(1)
    new = [member(2, family=""), member(3, "t", family=""), member(4, op="softmax", family="")]
    assert families(old, *new) == [MATMUL, MATMUL, MATMUL, "dynamic:softmax"]
