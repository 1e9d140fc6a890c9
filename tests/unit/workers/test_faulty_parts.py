"""The search names the parts that make a whole fail, in few questions."""

from collections.abc import Sequence
from math import ceil, log2

from hypothesis import given
from hypothesis import strategies as st

from mallorn.workers.tvm.network.graph_recipes import MOST_FAULTY, faulty_parts


class Whole:
    """A whole that fails with some of its parts, and counts the questions about it."""

    def __init__(self, faulty: set[int]) -> None:
        self.faulty = faulty
        self.questions = 0

    def works_without(self, parts: Sequence[int]) -> bool:
        self.questions += 1
        return self.faulty <= set(parts)


@given(st.integers(1, 40), st.data())
def test_it_finds_exactly_the_faulty_parts(size: int, data: st.DataObject) -> None:
    faulty = data.draw(st.sets(st.integers(0, size - 1), min_size=1, max_size=MOST_FAULTY))
    whole = Whole(faulty)
    found = faulty_parts(range(size), whole.works_without)
    assert found is not None
    assert set(found) == faulty
    assert whole.questions <= 1 + len(faulty) * (ceil(log2(size)) + 1)


def test_it_leaves_out_all_parts_where_more_are_faulty_than_it_searches() -> None:
    assert faulty_parts(range(8), Whole(set(range(MOST_FAULTY + 1))).works_without) == range(8)


def test_a_whole_that_fails_without_all_parts_has_no_faulty_part() -> None:
    whole = Whole({8})
    assert faulty_parts(range(8), whole.works_without) is None
    assert whole.questions == 1


def test_a_whole_without_parts_has_no_faulty_part() -> None:
    assert faulty_parts((), Whole(set()).works_without) is None
