"""Cases that stand for a product of parameters."""

from itertools import combinations, product

from tests.fixtures.pairwise import covering

SIZES = {"kernel": 4, "strides": 3, "between": 4}
CASES = {
    values: dict(zip(SIZES, values, strict=True))
    for values in product(*(map(str, range(size)) for size in SIZES.values()))
}


def test_every_two_values_meet_in_far_fewer_cases() -> None:
    kept = covering(CASES)
    for one, other in combinations(range(len(SIZES)), 2):
        met = {(case[one], case[other]) for case in kept}
        assert met == {(case[one], case[other]) for case in CASES}
    assert len(kept) <= len(CASES) / 2


def test_the_same_cases_are_kept_every_time() -> None:
    assert covering(CASES) == covering(dict(CASES))


def test_values_of_one_parameter_are_all_kept() -> None:
    assert covering({"a": {"size": "0"}, "b": {"size": "1"}}) == ["a", "b"]
