"""What every grouping of workloads promises: the conformance kit of the Families seam."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mallorn.core.registry import REGISTRY, find_plugins, resolve
from mallorn.services.planner.families.base import Families, Member, Placement

GROUPINGS = sorted({*REGISTRY["families"], *find_plugins("families")})
OPS, STRUCTURES = ("conv2d", "matmul"), ("0" * 16, "1" * 16)


def grouping(name: str) -> Families:
    made: Families = resolve("families", name)()
    return made


def families_of(name: str) -> list[str]:
    """Some families that a grouping may have made."""
    stems = {"dynamic": [*OPS, "conv2d/00000000", "matmul/11111111", "matmul/11111111/key00000"]}
    return [f"{name}:{stem}" for stem in stems.get(name, OPS)]


def members(name: str) -> st.SearchStrategy[list[Member]]:
    """Workloads of a target, new ones among them, with whatever evidence."""
    families = families_of(name)
    shape = st.tuples(st.sampled_from(OPS), st.sampled_from(STRUCTURES))
    place = st.one_of(st.just(""), st.sampled_from(families))
    share = st.sampled_from([0.3, 0.59, 0.6, 0.7, 0.75, 0.76, 0.9])
    one = st.tuples(shape, place, st.lists(share, max_size=5))
    return st.lists(one, min_size=1, max_size=8).map(
        lambda found: [
            Member(at, f"key{at:061}", *shape, family, "said before" if family else "", tuple(shares))
            for at, (shape, family, shares) in enumerate(found)
        ]
    )


def settle(found: Sequence[Member], places: Mapping[int, Placement]) -> list[Member]:
    """The members where they were placed; whoever came from elsewhere starts with no evidence."""
    return [
        member
        if (place := places[member.id]).family == member.family
        else replace(member, family=place.family, why=place.why, rank_shares=())
        for member in found
    ]


@pytest.mark.parametrize("name", GROUPINGS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_everyone_is_placed_with_a_reason_in_a_family_of_that_grouping(
    name: str, data: st.DataObject
) -> None:
    found = data.draw(members(name))
    places = grouping(name).group(found)
    assert sorted(places) == [member.id for member in found]
    assert all(place.family.startswith(f"{name}:") and place.why for place in places.values())


@pytest.mark.parametrize("name", GROUPINGS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_the_order_of_the_members_changes_nothing(name: str, data: st.DataObject) -> None:
    found = data.draw(members(name))
    shuffled = data.draw(st.permutations(found))
    assert grouping(name).group(found) == grouping(name).group(shuffled)


@pytest.mark.parametrize("name", GROUPINGS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_without_new_evidence_everyone_stays(name: str, data: st.DataObject) -> None:
    found = data.draw(members(name))
    settled = settle(found, grouping(name).group(found))
    assert grouping(name).group(settled) == {m.id: Placement(m.family, m.why) for m in settled}


@pytest.mark.parametrize("name", [name for name in GROUPINGS if not grouping(name).revises])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_grouping_that_does_not_revise_leaves_everyone_alone(name: str, data: st.DataObject) -> None:
    found = data.draw(members(name))
    places = grouping(name).group(found)
    placed = [member for member in found if member.family]
    assert [places[m.id] for m in placed] == [Placement(m.family, m.why) for m in placed]


@pytest.mark.parametrize("name", GROUPINGS)
def test_numbers_of_rows_say_nothing(name: str) -> None:
    one, two = Member(1, "a", "matmul", "s"), Member(2, "b", "conv2d", "t")
    places = grouping(name).group([one, two])
    swapped = grouping(name).group([replace(one, id=2), replace(two, id=1)])
    assert (places[1], places[2]) == (swapped[2], swapped[1])


@pytest.mark.parametrize(
    ("name", "same_family"),
    [
        ("none", []),
        ("structure", ["again"]),
        ("operator", ["again", "bigger"]),
    ],
)
def test_new_workloads_join_their_like(name: str, same_family: list[str]) -> None:
    first = Member(0, "first", "matmul", "s" * 16)
    placed = settle([first], grouping(name).group([first]))
    later = {
        "again": Member(1, "again", "matmul", "s" * 16),
        "bigger": Member(2, "bigger", "matmul", "t" * 16),
        "other": Member(3, "other", "softmax", "s" * 16),
    }
    if name == "structure":
        later.pop("other")  # one structure is one family, whatever the operator's name
    places = grouping(name).group([*placed, *later.values()])
    assert [key for key, new in later.items() if places[new.id].family == placed[0].family] == same_family
