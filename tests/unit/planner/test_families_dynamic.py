"""When `dynamic` splits and merges families, and that it does so on fresh evidence only."""

from dataclasses import replace
from random import Random

from mallorn.services.planner.families.base import Member, Placement, Ranking
from mallorn.services.planner.families.families_by_evidence import ByEvidence

MATMUL, SOFTMAX = "dynamic:matmul", "dynamic:softmax"


def member(number: int, structure: str = "s", family: str = MATMUL, op: str = "matmul") -> Member:
    return Member(number, f"{number:064}", op, structure * 16, family, "was there")


def ranked(who: Member, *shares: float | None, model: str = "", **others: float) -> Member:
    """With rounds of these shares, under its own family's model unless told otherwise."""
    start = len(who.rankings)
    foreign = {f"dynamic:{op}": share for op, share in others.items()}
    more = [
        Ranking(100 * who.id + start + at, model or who.family, share, foreign)
        for at, share in enumerate(shares)
    ]
    return replace(who, rankings=(*who.rankings, *more))


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


def test_a_round_that_cannot_be_judged_neither_splits_nor_saves() -> None:
    assert families(ranked(member(1), 0.5, None), FINE) == [MATMUL, MATMUL]
    assert families(ranked(member(1), 0.5, None, 0.5), FINE) == [f"{MATMUL}/ssssssss", MATMUL]


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


def test_what_another_familys_model_proposed_is_no_evidence() -> None:
    in_flight = ranked(member(1, family=f"{MATMUL}/ssssssss"), 0.4, 0.4, model=MATMUL)
    assert families(in_flight, replace(FINE, family=in_flight.family)) == [in_flight.family] * 2


def test_models_that_know_each_other_merge_under_the_smaller_name() -> None:
    one = ranked(member(1), 0.7, 0.7, softmax=0.8)
    two = ranked(member(2, "t", SOFTMAX, "softmax"), 0.7, 0.7, matmul=0.77)
    silent = member(3, "u", SOFTMAX, "softmax")
    places = ByEvidence().group([one, two, silent])
    assert {place.family for place in places.values()} == {MATMUL}
    assert places[1] == Placement(MATMUL, "was there")
    assert places[3].why.startswith(f"came with {SOFTMAX}, which merged: each one's model had at least 0.77")


def test_one_sided_or_single_or_middling_evidence_merges_nothing() -> None:
    def two(*shares: float) -> Member:
        who = member(2, "t", SOFTMAX, "softmax")
        for share in shares:
            who = ranked(who, 0.7, matmul=share)
        return who

    one = ranked(member(1), 0.7, 0.7, softmax=0.8)
    for shares in [(), (0.9,), (0.9, 0.75), (0.7, 0.9)]:
        assert families(one, two(*shares)) == [MATMUL, SOFTMAX]
    assert families(one, two(0.7, 0.9, 0.9)) == [MATMUL, MATMUL]


def test_a_new_softmax_follows_the_softmaxes_that_merged() -> None:
    merged = member(1, "t", MATMUL, "softmax")
    assert families(merged, member(2, "u", "", "softmax")) == [MATMUL, MATMUL]


def test_a_new_workload_of_another_structure_starts_with_its_operator() -> None:
    left = member(1, "t", f"{MATMUL}/tttttttt")
    assert families(left, member(2, "u", "")) == [left.family, MATMUL]
    assert families(left, member(3, "t", "")) == [left.family, left.family]


def test_whatever_the_rounds_bring_a_split_follows_two_rounds_in_the_family_that_is_left() -> None:
    random = Random(5)
    shapes = [(op, structure) for op in ("matmul", "softmax") for structure in "stst"]
    crowd = [member(at, shape, f"dynamic:{op}", op) for at, (op, shape) in enumerate(shapes)]
    moves = []
    for number in range(400):
        at = random.randrange(len(crowd))
        crowd[at] = with_noise(crowd[at], number, sorted({one.family for one in crowd}), random)
        places = ByEvidence().group(crowd)
        for who in (who for who in crowd if places[who.id].family != who.family):
            moves.append(places[who.id].why.split()[0])
            own = [ranking for ranking in who.rankings if ranking.model == who.family]
            assert moves[-1] == "came" or len(own) >= 2
        crowd = [moved(who, places[who.id]) for who in crowd]
    assert set(moves) == {"split", "came"}


def with_noise(who: Member, number: int, names: list[str], random: Random) -> Member:
    others = {name: random.random() for name in names if name != who.family}
    return replace(who, rankings=(*who.rankings, Ranking(number, who.family, random.random(), others)))


def moved(who: Member, place: Placement) -> Member:
    if place.family == who.family:
        return who
    return replace(who, family=place.family, why=place.why, rankings=())
